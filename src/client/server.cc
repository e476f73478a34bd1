#include "client/server.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <charconv>

#include "client/agent_call.h"
#include "net/tls.h"

namespace atl::client {
namespace {

namespace asio = net::asio;

constexpr std::size_t kMaxAnswer = 64 << 20;

Error refusal(int status, const json::value& body) {
  std::string message = text_of(body, "message");
  if (message.empty()) message = "the server answered " + std::to_string(status);
  if (status == 401) message += ". FIX: E2B_API_KEY must be a key of this server (`atoll key ls`)";
  return Error{code_of_status(status), 0, std::move(message)};
}

using Connected = Result<std::unique_ptr<net::Stream>>;

net::Task<Connected> connect_any(const Server& server) {
  asio::ip::tcp::resolver resolver(co_await asio::this_coro::executor);
  auto [ec, found] = co_await resolver.async_resolve(server.host, std::to_string(server.port),
                                                     asio::as_tuple(asio::use_awaitable));
  if (ec || found.empty())
    co_return make_error(Errc::unavailable, "cannot resolve " + server.host + ": " + ec.message());
  std::string last;
  for (const auto& entry : found) {
    auto connecting = net::connect_tcp(entry.endpoint().address().to_string(), server.port);
    auto connected = co_await std::move(connecting);
    if (connected.ok()) co_return connected;
    last = connected.error().message;
  }
  co_return make_error(Errc::unavailable, "no server answers at " + server.url() + " (" + last +
                                              "). FIX: start it with `atoll up`");
}

struct Attempt {
  explicit Attempt(const asio::any_io_executor& executor) : over(executor, kConnectTime) {}
  std::optional<Connected> outcome;
  asio::steady_timer over;  // cancelled when there is an outcome
  asio::cancellation_signal cancel;
};

net::Task<void> attempt_connect(Server server, std::shared_ptr<Attempt> attempt) {
  auto connecting = connect_any(server);
  attempt->outcome.emplace(co_await std::move(connecting));
}

}  // namespace

Errc code_of_status(int status) {
  switch (status) {
    case 400:
      return Errc::invalid_argument;
    case 401:
      return Errc::unauthenticated;
    case 403:
      return Errc::permission_denied;
    case 404:
      return Errc::not_found;
    case 409:
      return Errc::failed_precondition;
    case 429:
      return Errc::resource_exhausted;
    case 501:
      return Errc::unimplemented;
    case 502:
    case 503:
      return Errc::unavailable;
    case 504:
      return Errc::deadline_exceeded;
    default:
      return Errc::internal;
  }
}

std::string Server::url() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (tls ? "https://" : "http://") + (v6 ? "[" + host + "]" : host) + ":" +
         std::to_string(port);
}

Result<Server> parse_server(std::string_view url, std::string key) {
  const std::string whole(url);
  Server out;
  out.key = std::move(key);
  if (url.starts_with("https://")) {
    out.tls = true;
    url.remove_prefix(8);
  } else if (url.starts_with("http://")) {
    url.remove_prefix(7);
  } else {
    return make_error(Errc::invalid_argument, "not an http or https URL: " + whole);
  }
  if (const std::size_t slash = url.find('/'); slash != std::string_view::npos)
    url = url.substr(0, slash);
  out.port = out.tls ? 443 : 80;
  const std::size_t bracket = url.rfind(']');
  const std::size_t colon = url.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    const char* end = url.data() + url.size();
    const auto [stop, error] = std::from_chars(url.data() + colon + 1, end, out.port);
    if (error != std::errc() || stop != end)
      return make_error(Errc::invalid_argument, "not a port in " + whole);
    url = url.substr(0, colon);
  }
  if (url.size() > 2 && url.front() == '[' && url.back() == ']')
    url = url.substr(1, url.size() - 2);
  if (url.empty()) return make_error(Errc::invalid_argument, "no host in " + whole);
  out.host = url;
  return out;
}

Result<void> load_trust(Server& server) {
  if (!server.tls || server.trust) return {};
  auto made = net::TlsClientContext::create(net::TlsClientContext::Verify::peer, server.ca_file);
  if (!made.ok()) return std::move(made).error();
  server.trust = std::move(*made);
  return {};
}

net::Task<Result<std::unique_ptr<net::Stream>>> open_stream(Server server) {
  ATOLL_CO_TRY(load_trust(server));
  const auto executor = co_await asio::this_coro::executor;
  auto attempt = std::make_shared<Attempt>(executor);
  asio::co_spawn(
      executor, attempt_connect(server, attempt),
      asio::bind_cancellation_slot(attempt->cancel.slot(),
                                   [attempt](std::exception_ptr) { attempt->over.cancel(); }));
  (void)co_await attempt->over.async_wait(asio::as_tuple(asio::use_awaitable));
  if (!attempt->outcome) {
    attempt->cancel.emit(asio::cancellation_type::terminal);
    co_return make_error(Errc::unavailable, "no server answers at " + server.url() + " in time");
  }
  ATOLL_CO_TRY_ASSIGN(auto stream, std::move(*attempt->outcome));
  if (!server.tls) co_return stream;
  auto securing =
      net::connect_tls(std::move(stream), server.trust, server.host, {"http/1.1"}, kConnectTime);
  ATOLL_CO_TRY_ASSIGN(net::TlsStream secured, co_await std::move(securing));
  co_return std::move(secured.stream);
}

net::RequestHead api_request(const Server& server, std::string_view method, std::string target,
                             bool has_body) {
  net::RequestHead head;
  head.method = method;
  head.target = std::move(target);
  head.headers.add("Host", server.host);
  head.headers.add("X-API-Key", server.key);
  if (has_body) head.headers.add("Content-Type", "application/json");
  return head;
}

Result<ApiAnswer> api_answer(net::HttpClient::Answer raw) {
  ApiAnswer answer;
  answer.status = raw.head.status;
  answer.headers = std::move(raw.head.headers);
  if (!raw.body.empty()) {
    if (auto parsed = parse_json(raw.body); parsed.ok()) answer.body = std::move(*parsed);
  }
  if (answer.status < 200 || answer.status > 299) return refusal(answer.status, answer.body);
  return answer;
}

net::Task<Result<ApiAnswer>> call_api(Server server, std::string method, std::string target,
                                      std::optional<json::value> body,
                                      std::chrono::milliseconds limit) {
  auto opening = open_stream(server);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(opening));
  net::HttpClient client(std::move(stream));
  const Guard guard(client.stream(), limit);
  net::RequestHead head = api_request(server, method, std::move(target), body.has_value());
  auto asking =
      client.request(std::move(head), body ? json::serialize(*body) : std::string(), kMaxAnswer);
  auto answer = co_await std::move(asking);
  if (!answer.ok() && guard.fired()) {
    co_return make_error(Errc::deadline_exceeded, server.url() + " did not answer within " +
                                                      std::to_string(limit.count() / 1000) + " s");
  }
  if (!answer.ok()) co_return std::move(answer).error();
  co_return api_answer(std::move(*answer));
}

std::string text_of(const json::value& object, std::string_view name) {
  const auto* o = object.if_object();
  const auto* value = o != nullptr ? o->if_contains(name) : nullptr;
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : std::string();
}

std::int64_t number_of(const json::value& object, std::string_view name) {
  const auto* o = object.if_object();
  const auto* value = o != nullptr ? o->if_contains(name) : nullptr;
  if (value == nullptr) return 0;
  if (value->is_int64()) return value->as_int64();
  if (value->is_uint64()) return std::int64_t(value->as_uint64());
  if (value->is_double()) return std::int64_t(value->as_double());
  return 0;
}

}  // namespace atl::client
