// HTTPS listeners: TLS handshake, then HTTP/2 or HTTP/1.1 as ALPN says.
#include <array>

#include "net/http2.h"
#include "net/http_server.h"
#include "net/server_connection.h"
#include "net/tls.h"

namespace atl::net {
namespace {

// The first byte of a TLS connection is that of a handshake record; that of a plain HTTP request is
// a letter.
constexpr char kHandshakeRecord = 0x16;

bool looks_like_http(std::string_view first) {
  return !first.empty() &&
         ((first[0] >= 'A' && first[0] <= 'Z') || (first[0] >= 'a' && first[0] <= 'z'));
}

Task<Result<Secured>> secure(std::shared_ptr<TlsServerContext> context,
                             std::unique_ptr<Stream> plain, const ServerOptions& options) {
  const auto until = std::chrono::steady_clock::now() + options.handshake_time;
  plain->set_read_timeout(options.handshake_time);
  plain->set_write_timeout(options.handshake_time);
  std::array<char, 4096> buffer;
  auto reading = plain->read_some(buffer);
  ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(reading));
  if (n == 0) co_return make_error(Errc::unavailable, "the client went away");
  const std::string_view first(buffer.data(), n);
  if (first[0] != kHandshakeRecord) {
    if (looks_like_http(first)) {
      auto refusing =
          refuse_http1(*plain, options, 400, "plain HTTP was sent to an HTTPS port: use https://");
      co_await std::move(refusing);
    }
    co_return make_error(Errc::invalid_argument, "the client does not speak TLS");
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  auto shaking = accept_tls(std::move(plain), std::move(context), std::max(left, left.zero()),
                            std::string(first));
  ATOLL_CO_TRY_ASSIGN(TlsStream tls, co_await std::move(shaking));
  Secured secured;
  secured.stream = std::move(tls.stream);
  if (tls.alpn == "h2") secured.protocol = serve_http2;
  co_return secured;
}

std::shared_ptr<const Securing> securing(std::shared_ptr<TlsServerContext> context) {
  return std::make_shared<const Securing>(Securing{
      [context = std::move(context)](std::unique_ptr<Stream> plain, const ServerOptions& options) {
        return secure(context, std::move(plain), options);
      }});
}

}  // namespace

Result<std::uint16_t> HttpServer::listen_tls(const std::string& address, std::string name,
                                             std::shared_ptr<TlsServerContext> context) {
  return listen_secured(address, std::move(name), securing(std::move(context)));
}

Result<void> HttpServer::listen_tls_fd(int fd, std::string name,
                                       std::shared_ptr<TlsServerContext> context) {
  return listen_secured_fd(fd, std::move(name), securing(std::move(context)));
}

}  // namespace atl::net
