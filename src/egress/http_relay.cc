#include <algorithm>
#include <array>
#include <boost/asio/this_coro.hpp>

#include "egress/http_name.h"
#include "egress/session.h"
#include "egress/side.h"
#include "net/http1.h"

namespace atl::egress {
namespace {

constexpr std::size_t kBuffer = 16 * 1024;
constexpr std::array<std::string_view, 11> kHopByHop = {"Connection",
                                                        "Keep-Alive",
                                                        "Proxy-Connection",
                                                        "Proxy-Authenticate",
                                                        "Proxy-Authorization",
                                                        "TE",
                                                        "Trailer",
                                                        "Transfer-Encoding",
                                                        "Upgrade",
                                                        "Content-Length",
                                                        "Expect"};

bool passes(const net::Headers& headers, std::string_view name) {
  const auto is = [&](std::string_view other) { return net::iequals(other, name); };
  return std::none_of(kHopByHop.begin(), kHopByHop.end(), is) && !headers.lists("Connection", name);
}

// WebSocket only: any other protocol (h2c) could name hosts that nobody checks.
bool asks_websocket(const net::RequestHead& head) {
  return head.version >= 11 && head.method == "GET" &&
         net::iequals(head.headers.get("Upgrade"), "websocket") &&
         head.headers.lists("Connection", "upgrade");
}

net::RequestHead request_upstream(const net::RequestHead& request, const Permit& permit,
                                  bool websocket) {
  net::RequestHead out;
  out.method = request.method;
  out.target = request.target;
  for (const auto& field : request.headers) {
    // Host always passes, even if Connection lists it.
    if (net::iequals(field.name, "Host") || passes(request.headers, field.name))
      out.headers.add(field.name, field.value);
  }
  for (const auto& [name, value] : permit.headers) out.headers.set(name, value);
  if (websocket) {
    out.headers.add("Connection", "Upgrade");
    out.headers.add("Upgrade", "websocket");
  }
  return out;
}

// One side of a conversation: the requests of a client.
class Conversation {
 public:
  Conversation(std::shared_ptr<Session> session, std::unique_ptr<net::Stream> client,
               std::uint16_t port, CheckRequest check, OpenUpstream open)
      : session_(std::move(session)),
        client_(std::move(client)),
        port_(port),
        check_(std::move(check)),
        open_(std::move(open)),
        reader_(*client_, buffer_, limits_) {
    session_->hold_client(client_.get());
  }
  ~Conversation() {
    session_->hold_client(nullptr);
    session_->hold_upstream(nullptr);
  }

  net::Task<void> run() {
    for (;;) {
      auto exchanging = exchange();
      if (!(co_await std::move(exchanging))) break;
    }
    if (upstream_) upstream_->stream().close();
    client_->close();
  }

 private:
  // False: that was the last request.
  net::Task<bool> exchange() {
    auto reading = reader_.read_request();
    auto got = co_await std::move(reading);
    if (!got.ok()) {
      if (got.error().code == Errc::invalid_argument || got.error().code == Errc::out_of_range) {
        auto refusing = refuse(400, got.error().message);
        co_await std::move(refusing);
      }
      co_return false;
    }
    if (!*got) co_return false;
    session_->touch();
    net::RequestHead request = std::move(**got);
    // Framed anew, a body in another coding would lose the word about it.
    const auto coding = request.headers.find("Transfer-Encoding");
    if (coding && !net::iequals(*coding, "chunked")) {
      auto refusing = refuse(400, "the only transfer coding here is chunked");
      co_return co_await std::move(refusing);
    }
    const auto name = take_request_name(request, port_);
    if (!name.ok()) {
      auto refusing = refuse(403, name.error().message);
      co_return co_await std::move(refusing);
    }
    auto checking = check_(*name);
    const auto permit = co_await std::move(checking);
    if (!permit.ok()) {
      auto refusing = refuse(403, permit.error().message);
      co_return co_await std::move(refusing);
    }
    const bool websocket = asks_websocket(request);
    auto sending = send_request(request_upstream(request, *permit, websocket));
    auto answer = co_await std::move(sending);
    if (!answer.ok()) {
      auto ending = settle_upload();
      co_await std::move(ending);
      if (session_->ended()) co_return false;
      auto refusing = refuse(502, "the host could not be reached: " + answer.error().message);
      co_return co_await std::move(refusing);
    }
    session_->touch();
    if (answer->status == 101) {
      if (websocket) {
        auto tunnelling = tunnel(std::move(*answer));
        co_await std::move(tunnelling);
      } else {
        session_->end();
      }
      co_return false;
    }
    auto answering = send_answer(std::move(*answer), request);
    co_return co_await std::move(answering);
  }

  // Sends the request and reads the head of its answer; the body is sent meanwhile. A connection
  // that the host closed while it was idle is replaced once, if nothing of a body is lost by that.
  net::Task<Result<net::ResponseHead>> send_request(net::RequestHead head) {
    const bool has_body = !reader_.at_end();
    for (;;) {
      const bool reused = upstream_ != nullptr;
      if (!reused) {
        auto opening = open_();
        ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(opening));
        upstream_ = std::make_unique<net::HttpClient>(std::move(stream), limits_);
        session_->hold_upstream(&upstream_->stream());
      }
      const auto length = has_body ? reader_.content_length() : std::optional<std::uint64_t>(0);
      auto writing = upstream_->write_head(head, length);
      auto written = co_await std::move(writing);
      if (written.ok()) {
        if (has_body) {
          upload_.emplace(co_await net::asio::this_coro::executor, upload());
        } else {
          auto finishing = upstream_->finish_body();
          written = co_await std::move(finishing);
        }
      }
      Result<net::ResponseHead> answer = make_error(Errc::unavailable, "it ended the connection");
      if (written.ok()) {
        auto reading = upstream_->read_head();
        answer = co_await std::move(reading);
      }
      if (answer.ok() || !reused || has_body || session_->ended()) co_return answer;
      session_->hold_upstream(nullptr);
      upstream_.reset();
    }
  }

  net::Task<void> upload() {
    const auto buffer = std::make_unique_for_overwrite<char[]>(kBuffer);
    while (!reader_.at_end()) {
      auto reading = reader_.read_some(std::span<char>(buffer.get(), kBuffer));
      const auto n = co_await std::move(reading);
      if (!n.ok()) {
        session_->end();  // half a request must not look like a whole one
        co_return;
      }
      session_->touch();
      if (*n == 0) break;
      auto writing = upstream_->write_body(std::string_view(buffer.get(), *n));
      if (!(co_await std::move(writing)).ok()) co_return;  // there may be an answer that says why
      session_->touch();
    }
    auto finishing = upstream_->finish_body();
    (void)co_await std::move(finishing);
  }

  // Waits for the upload; one that still goes on when the answer is complete ends the connection.
  net::Task<void> settle_upload() {
    if (!upload_) co_return;
    if (!upload_->done()) {
      upload_cut_ = true;
      if (upstream_) upstream_->stream().close();
      client_->shutdown_write();
      client_->close();
    }
    auto finishing = upload_->finished();
    co_await std::move(finishing);
    upload_.reset();
  }

  net::Task<bool> send_answer(net::ResponseHead answer, const net::RequestHead& request) {
    net::BodyReader& body = upstream_->body();
    const bool no_body = body.at_end();
    const auto length = body.content_length();
    const bool chunked = !no_body && !length && request.version >= 11;
    bool keep = reader_.keep_alive() && (no_body || length || chunked);

    std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " " + clean(answer.reason);
    head += "\r\n";
    net::Headers headers;
    for (const auto& field : answer.headers) {
      const bool is_length = net::iequals(field.name, "Content-Length");
      // The answer to HEAD, and 304, tell a length without having one.
      if ((is_length && no_body && answer.status != 204) || passes(answer.headers, field.name))
        headers.add(field.name, field.value);
    }
    if (!no_body && length) headers.set("Content-Length", std::to_string(*length));
    if (chunked) headers.add("Transfer-Encoding", "chunked");
    if (!keep) headers.add("Connection", "close");
    net::append_fields(head, headers);
    head += "\r\n";
    auto writing = client_->write_all(head);
    if (!(co_await std::move(writing)).ok()) co_return broken();

    const auto buffer = std::make_unique_for_overwrite<char[]>(kBuffer);
    while (!body.at_end()) {
      auto reading = body.read_some(std::span<char>(buffer.get(), kBuffer));
      const auto n = co_await std::move(reading);
      if (!n.ok()) {
        session_->end();  // an answer cut short must not look whole
        break;
      }
      session_->touch();
      if (*n == 0) break;
      const std::string_view piece(buffer.get(), *n);
      auto sending = chunked ? net::write_chunk(*client_, piece) : client_->write_all(piece);
      if (!(co_await std::move(sending)).ok()) {
        session_->end();
        break;
      }
      session_->touch();
    }
    if (!session_->ended() && chunked) {
      auto finishing = client_->write_all("0\r\n\r\n");
      if (!(co_await std::move(finishing)).ok()) session_->end();
    }
    auto settling = settle_upload();
    co_await std::move(settling);
    if (session_->ended() || upload_cut_) co_return false;
    if (!upstream_->reusable()) {
      session_->hold_upstream(nullptr);
      upstream_.reset();
    }
    co_return keep;
  }

  bool broken() {
    session_->end();
    return false;
  }

  net::Task<void> tunnel(net::ResponseHead answer) {
    std::string head = "HTTP/1.1 101 Switching Protocols\r\n";
    net::Headers headers;
    for (const auto& field : answer.headers) {
      if (passes(answer.headers, field.name)) headers.add(field.name, field.value);
    }
    headers.add("Connection", "Upgrade");
    headers.add("Upgrade", "websocket");
    net::append_fields(head, headers);
    head += "\r\n";
    std::string from_upstream = head + upstream_->take_over();
    auto relaying = relay_bytes(session_, *client_, upstream_->stream(), buffer_.take_all(),
                                std::move(from_upstream));
    co_await std::move(relaying);
  }

  // Answers in the host's place, and ends the connection: what follows on it is not worth reading.
  net::Task<bool> refuse(int status, std::string why) {
    const std::string body = "atoll egress: " + clean(why) + "\n";
    const std::string text = "HTTP/1.1 " + std::to_string(status) + " " +
                             std::string(net::reason_phrase(status)) +
                             "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: " +
                             std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
    client_->set_write_timeout(std::chrono::milliseconds(10'000));
    auto writing = client_->write_all(text);
    if (!(co_await std::move(writing)).ok()) co_return false;
    client_->shutdown_write();
    // A close with unread bytes would reset the connection and take the answer with it.
    client_->set_read_timeout(std::chrono::milliseconds(500));
    const auto buffer = std::make_unique_for_overwrite<char[]>(kBuffer);
    for (int i = 0; i < 64; ++i) {
      auto reading = client_->read_some(std::span<char>(buffer.get(), kBuffer));
      const auto n = co_await std::move(reading);
      if (!n.ok() || *n == 0) break;
    }
    co_return false;
  }

  static std::string clean(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, 300)) out += c >= ' ' && c < 0x7f ? c : ' ';
    return out;
  }

  std::shared_ptr<Session> session_;
  std::unique_ptr<net::Stream> client_;
  const std::uint16_t port_;
  CheckRequest check_;
  OpenUpstream open_;
  net::HttpLimits limits_;
  net::Http1Buffer buffer_;
  net::Http1Reader reader_;
  std::unique_ptr<net::HttpClient> upstream_;
  std::optional<Side> upload_;
  bool upload_cut_ = false;
};

}  // namespace

net::Task<void> relay_http(std::shared_ptr<Session> session, std::unique_ptr<net::Stream> client,
                           std::uint16_t port, CheckRequest check, OpenUpstream open) {
  Conversation conversation(std::move(session), std::move(client), port, std::move(check),
                            std::move(open));
  auto running = conversation.run();
  co_await std::move(running);
}

}  // namespace atl::egress
