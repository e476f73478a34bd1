#include "net/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <mutex>
#include <unordered_map>

#include "base/log.h"
#include "net/http1.h"
#include "net/last_write.h"
#include "net/server_connection.h"

namespace atl::net {
namespace {

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kDrainBytes =
    8 << 20;  // what a refused upload may still send before we hang up
constexpr std::chrono::milliseconds kDrainTime{2000};

class Http1Writer final : public ResponseWriter, public LastWriter {
 public:
  // `request`, if any, outlives the writer.
  Http1Writer(Stream& stream, bool head_only, bool http10, bool keep_alive,
              const Http1Reader* request = nullptr)
      : stream_(stream),
        request_(request),
        head_only_(head_only),
        http10_(http10),
        keep_alive_(keep_alive) {}

  Task<Result<void>> send(int status, Headers headers, std::string body) override {
    if (started_) co_return make_error(Errc::internal, "a second answer to one request");
    const bool bodiless = status == 204 || status == 304 || (status >= 100 && status < 200);
    std::string head = head_of(status, headers);
    if (!bodiless) head += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    head += "\r\n";
    started_ = finished_ = true;
    const std::array<std::string_view, 2> pieces = {
        head, bodiless || head_only_ ? std::string_view() : body};
    co_return co_await stream_.write_pieces(pieces);
  }

  Task<Result<void>> start(int status, Headers headers,
                           std::optional<std::uint64_t> length) override {
    if (started_) co_return make_error(Errc::internal, "a second answer to one request");
    started_ = true;
    const bool tunnel = status == 101;
    if (!length && http10_ && !tunnel) keep_alive_ = false;
    std::string head = head_of(status, headers);
    if (length) {
      head += "Content-Length: " + std::to_string(*length) + "\r\n";
    } else if (!http10_ && !tunnel) {
      head += "Transfer-Encoding: chunked\r\n";
      chunked_ = true;
    }
    left_ = length;
    head += "\r\n";
    co_return co_await stream_.write_all(head);
  }

  Task<Result<void>> write(std::string_view bytes) override {
    if (!started_ || finished_) co_return make_error(Errc::internal, "a body without a head");
    if (bytes.empty() || head_only_) co_return Result<void>();
    if (left_) {
      if (bytes.size() > *left_)
        co_return make_error(Errc::internal, "a body longer than its Content-Length");
      *left_ -= bytes.size();
    }
    if (chunked_) co_return co_await write_chunk(stream_, bytes);
    co_return co_await stream_.write_all(bytes);
  }

  Task<Result<void>> finish() override {
    if (!started_ || finished_) co_return Result<void>();
    finished_ = true;
    if (left_ && *left_ > 0 && !head_only_) {
      abort();  // fewer bytes than promised: only a broken connection says so
      co_return make_error(Errc::internal, "a body shorter than its Content-Length");
    }
    if (chunked_ && !head_only_) co_return co_await stream_.write_all("0\r\n\r\n");
    co_return Result<void>();
  }

  Task<Result<void>> finish_with(std::string_view last) override {
    if (!started_ || finished_ || !chunked_ || head_only_ || last.empty()) {
      ATOLL_CO_TRY(co_await write(last));
      co_return co_await finish();
    }
    finished_ = true;
    char size[20];
    const int n = std::snprintf(size, sizeof size, "%zx\r\n", last.size());
    const std::array<std::string_view, 3> pieces = {std::string_view(size, std::size_t(n)), last,
                                                    "\r\n0\r\n\r\n"};
    co_return co_await stream_.write_pieces(pieces);
  }

  bool started() const override { return started_; }
  bool finished() const override { return finished_; }
  void abort() override {
    keep_alive_ = false;
    stream_.reset();
  }

  bool keep_alive() const { return keep_alive_; }
  void close_after() { keep_alive_ = false; }

 private:
  std::string head_of(int status, const Headers& headers) {
    std::string head = http10_ ? "HTTP/1.0 " : "HTTP/1.1 ";
    head += std::to_string(status);
    head += ' ';
    head += reason_phrase(status);
    head += "\r\n";
    append_fields(head, headers);
    if (headers.lists("Connection", "close")) keep_alive_ = false;
    // A body that nobody reads is not read later either (see run()), so no other request can
    // follow: unsaid, a client that keeps connections would send its next one into the closing end.
    if (status != 101 && request_ != nullptr && !request_->at_end()) keep_alive_ = false;
    if (status != 101 && !headers.has("Connection")) {
      if (!keep_alive_)
        head += "Connection: close\r\n";
      else if (http10_)
        head += "Connection: keep-alive\r\n";
    }
    return head;
  }

  Stream& stream_;
  const Http1Reader* request_;
  bool head_only_;
  bool http10_;
  bool keep_alive_;
  bool started_ = false;
  bool finished_ = false;
  bool chunked_ = false;
  std::optional<std::uint64_t> left_;
};

struct ServerExchange final : Exchange {
  ServerExchange(BodyReader& b, ResponseWriter& r, Stream& s, Http1Buffer& buf)
      : Exchange(b, r, s), buffer(buf) {}
  std::string take_over() override {
    taken = true;
    return buffer.take_all();
  }
  Http1Buffer& buffer;
  bool taken = false;
};

using Connection = ServerConnection;

// A client whose machine is gone is noticed within two minutes, also by a handler that only waits.
void keep_alive(int fd) {
  const int on = 1;
  const int idle = 60;
  const int interval = 15;
  const int count = 4;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

std::string peer_name(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char text[INET6_ADDRSTRLEN] = {};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  if (address.ss_family == AF_INET) {
    auto* in = reinterpret_cast<sockaddr_in*>(&address);
    inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&address);
    inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
  }
  return text;
}

}  // namespace

std::string error_body(const ServerOptions& options, int status, std::string_view message) {
  if (options.error_body) return options.error_body(status, message);
  return "{\"code\":" + std::to_string(status) + ",\"message\":\"" + std::string(message) + "\"}";
}

Task<void> refuse_http1(Stream& stream, const ServerOptions& options, int status,
                        std::string_view message) {
  Http1Writer writer(stream, false, false, false);
  Headers headers;
  headers.add("Content-Type", "application/json; charset=utf-8");
  auto sent = writer.send(status, std::move(headers), error_body(options, status, message));
  if ((co_await std::move(sent)).ok()) {
    auto drain = linger(stream);
    co_await std::move(drain);
  }
}

Task<void> linger(Stream& stream) {
  stream.shutdown_write();
  stream.set_read_timeout(kDrainTime);
  const auto until = std::chrono::steady_clock::now() + kDrainTime;
  std::vector<char> sink(64 * 1024);
  std::size_t total = 0;
  while (total < kDrainBytes && std::chrono::steady_clock::now() < until) {
    auto read = stream.read_some(sink);
    auto n = co_await std::move(read);
    if (!n.ok() || *n == 0) co_return;
    total += *n;
  }
}

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  Impl(asio::io_context& io_, ServerOptions options_, Handler handler_)
      : io(io_), options(std::move(options_)), handler(std::move(handler_)) {}

  asio::io_context& io;
  ServerOptions options;
  Handler handler;
  std::mutex mutex;  // guards all below; never held across a suspension
  std::unordered_map<std::uint64_t, std::shared_ptr<Connection>> connections;
  std::unordered_map<std::string, std::size_t> by_peer;
  std::uint64_t next_id = 0;
  bool stopping = false;
  std::vector<std::shared_ptr<asio::posix::stream_descriptor>> listeners;

  void listen(int fd, std::string name, std::shared_ptr<const Securing> securing = nullptr) {
    auto listener = std::make_shared<asio::posix::stream_descriptor>(asio::make_strand(io), fd);
    {
      std::lock_guard lock(mutex);
      listeners.push_back(listener);
    }
    asio::co_spawn(listener->get_executor(),
                   accept_loop(shared_from_this(), listener, std::move(name), std::move(securing)),
                   [](std::exception_ptr failure) {
                     if (failure) log::error("the accept loop ended with an exception");
                   });
  }

  static Task<void> accept_loop(std::shared_ptr<Impl> self,
                                std::shared_ptr<asio::posix::stream_descriptor> listener,
                                std::string name, std::shared_ptr<const Securing> securing) {
    asio::steady_timer pause(listener->get_executor());
    for (;;) {
      auto [ec] = co_await listener->async_wait(asio::posix::stream_descriptor::wait_read, kUse);
      if (ec) co_return;
      for (;;) {
        {
          std::lock_guard lock(self->mutex);
          if (self->stopping) co_return;
        }
        if (self->count() >= self->options.max_connections) {
          pause.expires_after(
              std::chrono::milliseconds(20));  // the backlog holds what we cannot take yet
          co_await pause.async_wait(kUse);
          continue;
        }
        sockaddr_storage address{};
        socklen_t length = sizeof address;
        const int fd = ::accept4(listener->native_handle(), reinterpret_cast<sockaddr*>(&address),
                                 &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
          self->serve(fd, address.ss_family, name, securing);
          continue;
        }
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) break;
        log::warn("accept failed; trying again shortly", {{"error", std::strerror(errno)}});
        pause.expires_after(std::chrono::milliseconds(50));
        co_await pause.async_wait(kUse);
        break;
      }
    }
  }

  std::size_t count() {
    std::lock_guard lock(mutex);
    return connections.size();
  }

  void serve(int fd, int family, const std::string& name,
             const std::shared_ptr<const Securing>& securing) {
    auto strand = asio::make_strand(io);
    boost::system::error_code ec;
    Socket socket(strand);
    socket.assign(asio::generic::stream_protocol(family, 0), fd, ec);
    if (ec) {
      ::close(fd);
      return;
    }
    if (family != AF_UNIX) keep_alive(fd);
    auto connection = std::make_shared<Connection>();
    connection->executor = strand;
    connection->listener = name;
    connection->peer = peer_name(fd);
    connection->stream = make_stream(std::move(socket));
    std::uint64_t id = 0;
    {
      std::lock_guard lock(mutex);
      if (options.max_connections_per_peer > 0 && !connection->peer.empty()) {
        std::size_t& count = by_peer[connection->peer];
        if (count >= options.max_connections_per_peer) {
          connection->stream->reset();
          return;
        }
        ++count;
      }
      id = next_id++;
      connections.emplace(id, connection);
    }
    auto self = shared_from_this();
    asio::co_spawn(strand, live(self, connection, securing),
                   [self, id, connection](std::exception_ptr failure) {
                     if (failure) {
                       try {
                         std::rethrow_exception(failure);
                       } catch (const std::exception& e) {
                         log::error("a connection ended with an exception", {{"what", e.what()}});
                       }
                     }
                     if (connection->stream) connection->stream->close();
                     connection->drain = nullptr;
                     std::lock_guard lock(self->mutex);
                     self->forget(id, connection->peer);
                   });
  }

  void forget(std::uint64_t id, const std::string& peer) {
    connections.erase(id);
    const auto it = by_peer.find(peer);
    if (it != by_peer.end() && --it->second == 0) by_peer.erase(it);
  }

  static Task<void> live(std::shared_ptr<Impl> self, std::shared_ptr<Connection> connection,
                         std::shared_ptr<const Securing> securing) {
    if (!securing) {
      auto running = run(self, connection);
      co_await std::move(running);
      co_return;
    }
    connection->handshake_fd = connection->stream->native_handle();
    auto shaking = securing->secure(std::move(connection->stream), self->options);
    auto secured = co_await std::move(shaking);
    connection->handshake_fd = -1;
    if (!secured.ok()) {
      log::debug("a TLS handshake failed",
                 {{"peer", connection->peer}, {"error", secured.error().message}});
      co_return;
    }
    connection->stream = std::move(secured->stream);
    {
      std::lock_guard lock(self->mutex);
      if (self->stopping) co_return;
    }
    auto running = secured->protocol ? secured->protocol(connection, self->options, self->handler)
                                     : run(self, connection);
    co_await std::move(running);
  }

  static Task<void> run(std::shared_ptr<Impl> self, std::shared_ptr<Connection> connection) {
    Stream& stream = *connection->stream;
    Http1Buffer buffer;
    Http1Reader reader(stream, buffer, self->options.limits);
    stream.set_write_timeout(self->options.limits.write_time);
    for (;;) {
      stream.set_read_timeout(self->options.limits.idle_time);
      auto next = reader.read_request();
      auto head = co_await std::move(next);
      if (!head.ok()) {
        const Error& error = head.error();
        int status = 0;
        if (error.code == Errc::out_of_range)
          status = 431;
        else if (error.code == Errc::invalid_argument)
          status = 400;
        else if (error.code == Errc::deadline_exceeded && reader.head_begun())
          status = 408;
        if (status != 0) {
          auto answer = refuse_http1(stream, self->options, status, error.message);
          co_await std::move(answer);
        }
        co_return;
      }
      if (!head->has_value()) co_return;
      connection->busy = true;
      const bool http10 = (*head)->version < 11;
      Http1Writer writer(stream, (*head)->method == "HEAD", http10, reader.keep_alive(), &reader);
      ServerExchange exchange(reader, writer, stream, buffer);
      exchange.request = std::move(**head);
      exchange.listener = connection->listener;
      exchange.peer = connection->peer;
      std::string failure;
      try {
        auto handling = self->handler(exchange);
        co_await std::move(handling);
      } catch (const std::exception& e) {
        failure = e.what();
      }
      if (!failure.empty())
        log::error("a handler threw", {{"what", failure}, {"target", exchange.request.target}});
      if (exchange.taken) co_return;
      if (!writer.started()) {
        auto answer = refuse_http1(stream, self->options, 500,
                                   "internal error: the request was not answered");
        co_await std::move(answer);
        co_return;
      }
      if (!writer.finished()) {
        writer.abort();
        co_return;
      }
      if (!reader.at_end()) {
        // The body was not wanted. A client that waits for "100 Continue" has not sent it, and will
        // not.
        if (!reader.awaits_continue()) {
          auto drain = linger(stream);
          co_await std::move(drain);
        }
        co_return;
      }
      if (!writer.keep_alive()) {
        stream.shutdown_write();
        co_return;
      }
      connection->busy = false;
      {
        std::lock_guard lock(self->mutex);
        if (self->stopping) co_return;
      }
    }
  }
};

HttpServer::HttpServer(asio::io_context& io, ServerOptions options, Handler handler)
    : impl_(std::make_shared<Impl>(io, std::move(options), std::move(handler))) {}

HttpServer::~HttpServer() {
  std::lock_guard lock(impl_->mutex);
  impl_->stopping = true;
}

Result<std::uint16_t> HttpServer::listen_tcp(const std::string& address, std::string name) {
  return listen_secured(address, std::move(name), nullptr);
}

Result<void> HttpServer::listen_fd(int fd, std::string name) {
  return listen_secured_fd(fd, std::move(name), nullptr);
}

Result<std::uint16_t> HttpServer::listen_secured(const std::string& address, std::string name,
                                                 std::shared_ptr<const Securing> securing) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos)
    return make_error(Errc::invalid_argument, "not an address:port: " + address);
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  boost::system::error_code ec;
  const auto ip = asio::ip::make_address(host, ec);
  const std::string port_text = address.substr(colon + 1);
  if (ec || port_text.empty() || port_text.find_first_not_of("0123456789") != std::string::npos ||
      port_text.size() > 5 || std::stoul(port_text) > 65535) {
    return make_error(Errc::invalid_argument,
                      "not an address:port: " + address + " (example: 127.0.0.1:3000)");
  }
  const asio::ip::tcp::endpoint endpoint(ip, std::uint16_t(std::stoul(port_text)));
  const int fd =
      ::socket(ip.is_v4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno_error("socket");
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::bind(fd, endpoint.data(), socklen_t(endpoint.size())) != 0 || ::listen(fd, 4096) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    const int err = errno;
    ::close(fd);
    return errno_error("listen on " + address, err);
  }
  impl_->listen(fd, std::move(name), std::move(securing));
  return ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&bound)->sin_port
                                          : reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port);
}

Result<void> HttpServer::listen_secured_fd(int fd, std::string name,
                                           std::shared_ptr<const Securing> securing) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return errno_error("listening descriptor");
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  impl_->listen(fd, std::move(name), std::move(securing));
  return {};
}

std::size_t HttpServer::connections() const { return impl_->count(); }

Task<void> HttpServer::close_connections(std::string name, const Stream& kept) {
  std::vector<std::shared_ptr<Connection>> open;
  {
    std::lock_guard lock(impl_->mutex);
    for (auto& [id, connection] : impl_->connections) {
      if (connection->listener == name) open.push_back(connection);
    }
  }
  const auto close = [](std::shared_ptr<Connection> connection, const Stream* keep) -> Task<void> {
    if (connection->handshake_fd >= 0)
      ::shutdown(connection->handshake_fd, SHUT_RDWR);
    else if (connection->stream && connection->stream.get() != keep)
      connection->stream->close();
    co_return;
  };
  for (auto& connection : open) {
    auto closing =
        asio::co_spawn(connection->executor, close(connection, &kept), asio::use_awaitable);
    co_await std::move(closing);
  }
}

Task<void> HttpServer::shutdown(std::chrono::milliseconds drain) {
  std::vector<std::shared_ptr<Connection>> open;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    for (auto& [id, connection] : impl_->connections) open.push_back(connection);
    for (auto& listener : impl_->listeners) {
      asio::post(listener->get_executor(), [listener] {
        boost::system::error_code ignored;
        listener->close(ignored);
      });
    }
    impl_->listeners.clear();
  }
  const auto close_if = [&open](bool busy_too) {
    for (auto& connection : open) {
      asio::post(connection->executor, [connection, busy_too] {
        if (connection->handshake_fd >= 0)
          ::shutdown(connection->handshake_fd, SHUT_RDWR);
        else if (connection->drain && !busy_too)
          connection->drain();
        else if (connection->stream && (busy_too || !connection->busy))
          connection->stream->close();
      });
    }
  };
  close_if(false);
  asio::steady_timer tick(co_await asio::this_coro::executor);
  const auto until = std::chrono::steady_clock::now() + drain;
  while (impl_->count() > 0 && std::chrono::steady_clock::now() < until) {
    tick.expires_after(std::chrono::milliseconds(10));
    co_await tick.async_wait(kUse);
  }
  close_if(true);
  for (int i = 0; i < 100 && impl_->count() > 0; ++i) {
    tick.expires_after(std::chrono::milliseconds(10));
    co_await tick.async_wait(kUse);
  }
}

}  // namespace atl::net
