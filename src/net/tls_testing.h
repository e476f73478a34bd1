// For the tests of TLS and HTTP/2: certificates in a temporary directory, an HTTPS server, and an
// HTTP/2 client over nghttp2 that can also be rude.
#pragma once

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "certs/certs.h"
#include "net/http.h"
#include "net/http_server.h"
#include "net/tls.h"

namespace atl::net::testing {

struct CertDir {
  CertDir() {
    char name[] = "/tmp/atoll-tls-test-XXXXXX";
    dir = ::mkdtemp(name);
    auto made = certs::make_ca("Test CA");
    EXPECT_TRUE(made.ok());
    ca.emplace(std::move(*made));
    put("ca.pem", ca->pem().certificate);
    issue({"localhost", "*.atoll.test", "127.0.0.1"});
  }
  ~CertDir() { std::filesystem::remove_all(dir); }
  void issue(std::vector<std::string> names) {
    auto leaf = ca->issue(names);
    EXPECT_TRUE(leaf.ok());
    put("leaf.pem", leaf->certificate);
    put("leaf.key", leaf->key);
  }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(dir + "/" + name) << text;
  }
  std::string path(const std::string& name) const { return dir + "/" + name; }

  std::string dir;
  std::optional<certs::Ca> ca;
};

inline Task<void> pause_for(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  timer.expires_after(time);
  co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

// Runs a server and a client coroutine on one io_context; the client decides when it ends.
class HttpsTest : public ::testing::Test {
 protected:
  template <class T>
  T run(Task<T> task, std::chrono::seconds limit = std::chrono::seconds(30)) {
    std::optional<T> out;
    asio::co_spawn(io_, std::move(task), [&](std::exception_ptr e, T value) {
      if (e) std::rethrow_exception(e);
      out.emplace(std::move(value));
      io_.stop();
    });
    io_.restart();
    io_.run_for(limit);
    EXPECT_TRUE(out.has_value()) << "the test did not finish";
    return out ? std::move(*out) : T{};
  }

  void serve(Handler handler, ServerOptions options = {}) {
    auto context = TlsServerContext::from_files(certs_.path("leaf.pem"), certs_.path("leaf.key"),
                                                {"h2", "http/1.1"});
    ASSERT_TRUE(context.ok()) << context.error().message;
    context_ = *context;
    server_ = std::make_unique<HttpServer>(io_, options, std::move(handler));
    auto port = server_->listen_tls("127.0.0.1:0", "tls", context_);
    ASSERT_TRUE(port.ok()) << port.error().message;
    port_ = *port;
    auto client = TlsClientContext::create(TlsClientContext::Verify::peer, certs_.path("ca.pem"));
    ASSERT_TRUE(client.ok()) << client.error().message;
    client_ = *client;
  }

  Task<Result<TlsStream>> dial(std::vector<std::string> alpn, std::string name = "localhost") {
    auto connecting = connect_tcp("127.0.0.1", port_);
    ATOLL_CO_TRY_ASSIGN(auto plain, co_await std::move(connecting));
    auto shaking =
        connect_tls(std::move(plain), client_, name, std::move(alpn), std::chrono::seconds(5));
    co_return co_await std::move(shaking);
  }

  // Runs a program while the server runs on a thread beside; its output, then "exit N".
  std::string outside(const std::string& command) {
    io_.restart();
    auto keep = asio::make_work_guard(io_);
    std::thread server([this] { io_.run(); });
    std::string out;
    FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    char buffer[4096];
    while (std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
    const int status = ::pclose(pipe);
    io_.stop();
    server.join();
    return out + "exit " + std::to_string(WEXITSTATUS(status));
  }
  std::string curl(const std::string& arguments) {
    return outside("timeout 60 curl -sS --cacert " + certs_.path("ca.pem") + " " + arguments);
  }
  std::string url(const std::string& path) const {
    return "https://localhost:" + std::to_string(port_) + path;
  }

  CertDir certs_;
  asio::io_context io_;
  std::shared_ptr<TlsServerContext> context_;
  std::shared_ptr<TlsClientContext> client_;
  std::unique_ptr<HttpServer> server_;
  std::uint16_t port_ = 0;
};

class Http2Client {
 public:
  struct Answer {
    int status = 0;
    std::map<std::string, std::string> headers;
    std::string body;
    std::size_t received = 0;
    bool ended = false;
    bool closed = false;
    std::uint32_t error = 0;
    std::vector<int> interim;
  };
  enum class Windows { automatic, manual };

  explicit Http2Client(std::unique_ptr<Stream> stream, Windows windows = Windows::automatic)
      : stream_(std::move(stream)) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_option* option = nullptr;
    nghttp2_option_new(&option);
    nghttp2_option_set_no_auto_window_update(option, windows == Windows::manual ? 1 : 0);
    // Rude clients send what a polite library would not.
    nghttp2_option_set_no_http_messaging(option, 1);
    nghttp2_option_set_peer_max_concurrent_streams(option, 10'000);
    nghttp2_option_set_max_send_header_block_length(option, 8 << 20);
    nghttp2_session_client_new2(&session, callbacks, this, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  ~Http2Client() { nghttp2_session_del(session); }
  Http2Client(const Http2Client&) = delete;
  Http2Client& operator=(const Http2Client&) = delete;

  using Fields = std::vector<std::pair<std::string, std::string>>;
  // `body`: null = none.
  std::int32_t request(const std::string& method, const std::string& path, Fields extra = {},
                       std::shared_ptr<std::string> body = nullptr, bool end = true) {
    Fields all = {
        {":method", method}, {":scheme", "https"}, {":authority", "localhost"}, {":path", path}};
    for (auto& field : extra) all.push_back(field);
    return request_fields(all, std::move(body), end);
  }
  std::int32_t request_fields(const Fields& all, std::shared_ptr<std::string> body = nullptr,
                              bool end = true) {
    std::vector<nghttp2_nv> view;
    for (const auto& [name, value] : all) {
      view.push_back({reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
                      reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())), name.size(),
                      value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    nghttp2_data_provider provider{};
    auto upload = std::make_unique<Upload>(Upload{body, 0, end});
    provider.source.ptr = upload.get();
    provider.read_callback = [](nghttp2_session*, std::int32_t, std::uint8_t* into,
                                std::size_t size, std::uint32_t* flags, nghttp2_data_source* source,
                                void*) -> ssize_t {
      auto& up = *static_cast<Upload*>(source->ptr);
      const std::size_t n = std::min(size, up.body->size() - up.at);
      std::memcpy(into, up.body->data() + up.at, n);
      up.at += n;
      if (up.at == up.body->size()) {
        if (up.end)
          *flags |= NGHTTP2_DATA_FLAG_EOF;
        else if (n == 0)
          return NGHTTP2_ERR_DEFERRED;
      }
      return ssize_t(n);
    };
    const std::int32_t id = nghttp2_submit_request(session, nullptr, view.data(), view.size(),
                                                   body ? &provider : nullptr, nullptr);
    uploads_[id] = std::move(upload);
    return id;
  }

  Answer& answer(std::int32_t id) { return answers_[id]; }
  std::size_t uploaded(std::int32_t id) { return uploads_[id]->at; }
  Stream& stream() { return *stream_; }

  Task<bool> flush() {
    std::string out;
    for (;;) {
      const std::uint8_t* data = nullptr;
      const auto n = nghttp2_session_mem_send(session, &data);
      if (n <= 0) break;
      out.append(reinterpret_cast<const char*>(data), std::size_t(n));
      if (out.size() > (1 << 18)) break;
    }
    if (out.empty()) co_return true;
    co_return (co_await stream_->write_all(out)).ok();
  }

  // Sends and receives until `done`, the end of the connection or silence; true if `done`.
  Task<bool> until(std::function<bool()> done,
                   std::chrono::milliseconds silence = std::chrono::seconds(10)) {
    std::vector<char> buffer(64 * 1024);
    stream_->set_read_timeout(silence);
    for (;;) {
      if (!co_await flush()) write_failed = true;
      if (done()) co_return true;
      if (!co_await flush()) write_failed = true;
      auto n = co_await stream_->read_some(buffer);
      if (!n.ok() || *n == 0) {
        if (!n.ok() && n.error().code == Errc::deadline_exceeded) co_return done();
        ended = true;
        co_return done();
      }
      if (nghttp2_session_mem_recv(session, reinterpret_cast<const std::uint8_t*>(buffer.data()),
                                   *n) < 0)
        co_return false;
    }
  }
  Task<Answer> fetch(const std::string& method, const std::string& path, Fields extra = {},
                     std::shared_ptr<std::string> body = nullptr) {
    const std::int32_t id = request(method, path, std::move(extra), std::move(body));
    (void)co_await until([this, id] { return answers_[id].closed; });
    co_return answers_[id];
  }

  nghttp2_session* session = nullptr;
  std::optional<std::uint32_t> goaway;
  std::map<std::int32_t, std::uint32_t> settings;
  std::size_t pongs = 0;
  bool ended = false;
  bool write_failed = false;
  bool keep_bodies = true;

 private:
  struct Upload {
    std::shared_ptr<std::string> body;
    std::size_t at;
    bool end;
  };

  static Http2Client& self(void* user) { return *static_cast<Http2Client*>(user); }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                       std::uint8_t, void* user) {
    Answer& answer = self(user).answers_[frame->hd.stream_id];
    const std::string key(reinterpret_cast<const char*>(name), name_size);
    const std::string text(reinterpret_cast<const char*>(value), value_size);
    if (key == ":status") {
      const int status = std::stoi(text);
      if (status < 200)
        answer.interim.push_back(status);
      else
        answer.status = status;
    }
    answer.headers[key] = text;
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    auto& me = self(user);
    if (frame->hd.type == NGHTTP2_GOAWAY) me.goaway = frame->goaway.error_code;
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) ++me.pongs;
    if (frame->hd.type == NGHTTP2_SETTINGS) {
      for (std::size_t i = 0; i < frame->settings.niv; ++i)
        me.settings[frame->settings.iv[i].settings_id] = frame->settings.iv[i].value;
    }
    const bool carries = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (carries && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
      me.answers_[frame->hd.stream_id].ended = true;
    return 0;
  }
  static int on_data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* data,
                     std::size_t size, void* user) {
    auto& me = self(user);
    me.answers_[id].received += size;
    if (me.keep_bodies) me.answers_[id].body.append(reinterpret_cast<const char*>(data), size);
    return 0;
  }
  static int on_close(nghttp2_session*, std::int32_t id, std::uint32_t error, void* user) {
    auto& me = self(user);
    me.answers_[id].closed = true;
    me.answers_[id].error = error;
    return 0;
  }

  std::unique_ptr<Stream> stream_;
  std::map<std::int32_t, Answer> answers_;
  std::map<std::int32_t, std::unique_ptr<Upload>> uploads_;
};

}  // namespace atl::net::testing
