#include "cli/remote.h"

#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <charconv>
#include <cstdlib>

#include "cli/home.h"
#include "cli/up.h"
#include "net/tls.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<std::string> read_key(const Home& home) {
  auto key = read_file(home.key_file());
  if (!key.ok()) {
    return make_error(key.error().code, "cannot read the API key of " + home.path() +
                                            ". FIX: run this as root, or set E2B_API_URL and "
                                            "E2B_API_KEY");
  }
  while (!key->empty() && (key->back() == '\n' || key->back() == ' ')) key->pop_back();
  return key;
}

Errc code_of(int status) {
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
    case 502:
    case 503:
      return Errc::unavailable;
    default:
      return Errc::internal;
  }
}

Error refusal(int status, const json::value& body) {
  std::string message = text_of(body, "message");
  if (message.empty()) message = "the server answered " + std::to_string(status);
  if (status == 401) message += ". FIX: E2B_API_KEY must be a key of this server (`atoll key ls`)";
  return Error{code_of(status), 0, std::move(message)};
}

net::Task<void> keep(std::optional<Result<net::HttpClient::Answer>>& into,
                     net::Task<Result<net::HttpClient::Answer>> call) {
  into.emplace(co_await std::move(call));
}

}  // namespace

std::string Remote::url() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (tls ? "https://" : "http://") + (v6 ? "[" + host + "]" : host) + ":" +
         std::to_string(port);
}

Result<Remote> parse_remote(std::string_view url, std::string key) {
  const std::string whole(url);
  Remote out;
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

// What a server answers is parsed without root, where the user for that exists.
Result<Remote> without_root(Result<Remote> remote) {
  if (!remote.ok() || ::geteuid() != 0) return remote;
  if (auto user = find_server_user(); user.ok()) {
    ATOLL_TRY(become(*user));
  }
  return remote;
}

Result<Remote> from_environment(const std::string& url) {
  ATOLL_TRY_ASSIGN(Remote remote, parse_remote(url, environment("E2B_API_KEY")));
  remote.ca_file = environment("NODE_EXTRA_CA_CERTS");
  return remote;
}

// A URL in the environment, else the server of the home on this machine, else a domain in the
// environment: `atoll up --domain` exports one that may not resolve here.
Result<Remote> locate(const std::string& home_option) {
  const bool environment_counts = home_option.empty() && !environment("E2B_API_KEY").empty();
  if (environment_counts && !environment("E2B_API_URL").empty())
    return from_environment(environment("E2B_API_URL"));
  const std::string path = default_home(home_option);
  auto server = find_server(path);
  if (!server.ok() && environment_counts && !environment("E2B_DOMAIN").empty())
    return from_environment("https://api." + environment("E2B_DOMAIN"));
  if (!server.ok()) {
    if (server.error().code != Errc::not_found) return std::move(server).error();
    return make_error(Errc::unavailable,
                      server.error().message +
                          ". FIX: start one with `atoll up -d`, name its --home, or set "
                          "E2B_API_URL and E2B_API_KEY");
  }
  ATOLL_TRY_ASSIGN(const std::string key, read_key(Home::at(path)));
  return parse_remote(server->url, key);
}

Result<Remote> find_remote(const std::string& home_option) {
  return without_root(locate(home_option));
}

net::Task<Result<std::unique_ptr<net::Stream>>> open_stream(const Remote& remote) {
  asio::ip::tcp::resolver resolver(co_await asio::this_coro::executor);
  auto [ec, found] = co_await resolver.async_resolve(remote.host, std::to_string(remote.port),
                                                     asio::as_tuple(asio::use_awaitable));
  if (ec || found.empty())
    co_return make_error(Errc::unavailable, "cannot resolve " + remote.host + ": " + ec.message());
  std::optional<Error> last;
  std::unique_ptr<net::Stream> stream;
  for (const auto& entry : found) {
    auto connecting = net::connect_tcp(entry.endpoint().address().to_string(), remote.port);
    auto connected = co_await std::move(connecting);
    if (connected.ok()) {
      stream = std::move(*connected);
      break;
    }
    last = std::move(connected).error();
  }
  if (!stream) {
    co_return make_error(Errc::unavailable, "no server answers at " + remote.url() + " (" +
                                                (last ? last->message : "") +
                                                "). FIX: start it with `atoll up`");
  }
  if (!remote.tls) co_return stream;
  auto context = net::TlsClientContext::create(net::TlsClientContext::Verify::peer, remote.ca_file);
  if (!context.ok()) co_return std::move(context).error();
  auto securing = net::connect_tls(std::move(stream), *context, remote.host, {"http/1.1"},
                                   std::chrono::seconds(10));
  ATOLL_CO_TRY_ASSIGN(net::TlsStream secured, co_await std::move(securing));
  co_return std::move(secured.stream);
}

net::Task<Result<net::HttpClient::Answer>> ApiClient::exchange(net::RequestHead head,
                                                               std::string body) {
  const bool kept = client_.has_value();
  for (int attempt = 0;; ++attempt) {
    if (!client_) {
      auto opening = open_stream(remote_);
      ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(opening));
      client_.emplace(std::move(stream));
    }
    auto asking = client_->request(head, body, 64 << 20);
    auto answer = co_await std::move(asking);
    if (!answer.ok() || !client_->reusable()) client_.reset();
    // A kept connection may have been closed meanwhile: once more over a new one.
    if (!answer.ok() && kept && attempt == 0 && answer.error().code == Errc::unavailable) continue;
    co_return answer;
  }
}

Result<ApiClient::Answer> ApiClient::call(std::string_view method, std::string target,
                                          std::optional<json::value> body) {
  net::RequestHead head;
  head.method = method;
  head.target = std::move(target);
  head.headers.add("Host", remote_.host);
  head.headers.add("X-API-Key", remote_.key);
  std::string text;
  if (body) {
    head.headers.add("Content-Type", "application/json");
    text = json::serialize(*body);
  }
  std::optional<Result<net::HttpClient::Answer>> outcome;
  asio::co_spawn(io_, keep(outcome, exchange(std::move(head), std::move(text))),
                 [](std::exception_ptr) {});
  io_.restart();
  io_.run();
  if (!outcome) return make_error(Errc::internal, "the call ended without an answer");
  ATOLL_TRY_ASSIGN(net::HttpClient::Answer raw, std::move(*outcome));
  Answer answer;
  answer.status = raw.head.status;
  answer.headers = std::move(raw.head.headers);
  if (!raw.body.empty()) {
    if (auto parsed = parse_json(raw.body); parsed.ok()) answer.body = std::move(*parsed);
  }
  if (answer.status < 200 || answer.status > 299) return refusal(answer.status, answer.body);
  return answer;
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

}  // namespace atl::cli
