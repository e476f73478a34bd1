#include "providers/url.h"

#include <charconv>

#include "client/server.h"
#include "providers/deadline.h"

namespace atl::providers {
namespace {

Error bad_url(std::string_view what) {
  return make_error(Errc::invalid_argument, std::string(what));
}

bool is_host(std::string_view host) {
  for (char c : host) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_' || c == ':';
    if (!fine) return false;
  }
  return !host.empty() && host.size() <= 253;
}

bool is_path(std::string_view path) {
  for (char c : path) {
    if (c <= ' ' || c >= '\x7f' || c == '"' || c == '<' || c == '>' || c == '\\' || c == '^' ||
        c == '`' || c == '{' || c == '|' || c == '}')
      return false;
  }
  return true;
}

// The client's advice is for servers of ours.
Error without_advice(Error error) {
  error.message = error.message.substr(0, error.message.find(". FIX:"));
  return error;
}

net::Task<Result<Incoming>> talk(const Outgoing& request, bool& sent) {
  client::Server server;
  server.host = request.url.host;
  server.port = request.url.port;
  server.tls = request.url.tls;
  auto opening = client::open_stream(std::move(server));
  auto opened = co_await std::move(opening);
  if (!opened.ok()) co_return without_advice(std::move(opened).error());
  net::HttpClient client(std::move(*opened));
  net::RequestHead head;
  head.method = request.method;
  head.target = request.url.path + request.target;
  head.headers = request.headers;
  head.headers.set("Host", request.url.authority());
  head.headers.set("Connection", "close");
  sent = true;
  auto asking = client.request(std::move(head), request.body, request.max_answer);
  auto answer = co_await std::move(asking);
  if (!answer.ok()) {
    const Errc code = answer.error().code;
    const bool ours = code == Errc::deadline_exceeded || code == Errc::unavailable;
    co_return make_error(ours ? code : Errc::data_loss,
                         request.url.str() + ": " + answer.error().message);
  }
  co_return Incoming{answer->head.status, std::move(answer->body)};
}

}  // namespace

std::string Url::authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  const std::string name = v6 ? "[" + host + "]" : host;
  return port == (tls ? 443 : 80) ? name : name + ":" + std::to_string(port);
}

std::string Url::str() const { return (tls ? "https://" : "http://") + authority() + path; }

Result<Url> parse_url(std::string_view text) {
  Url out;
  if (text.starts_with("https://")) {
    out.tls = true;
    text.remove_prefix(8);
  } else if (text.starts_with("http://")) {
    text.remove_prefix(7);
  } else {
    return bad_url("must be a URL that begins with http:// or https://");
  }
  if (text.find_first_of("?#") != std::string_view::npos)
    return bad_url("must be a URL without a query or a fragment");
  std::string_view authority = text.substr(0, text.find('/'));
  std::string_view path = text.substr(authority.size());
  if (authority.find('@') != std::string_view::npos)
    return bad_url("must be a URL without a user or a password");
  out.port = out.tls ? 443 : 80;
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    const std::string_view port = authority.substr(colon + 1);
    const auto [stop, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (error != std::errc() || stop != port.data() + port.size() || out.port == 0)
      return bad_url("must be a URL with a port from 1 to 65535");
    authority = authority.substr(0, colon);
  }
  if (authority.size() > 2 && authority.front() == '[' && authority.back() == ']')
    authority = authority.substr(1, authority.size() - 2);
  if (!is_host(authority)) return bad_url("must be a URL with the name or address of a host");
  if (!is_path(path)) return bad_url("must be a URL with a path that needs no escaping");
  while (path.ends_with('/')) path.remove_suffix(1);
  out.host = authority;
  out.path = path;
  return out;
}

net::Task<Result<Incoming>> send(Outgoing request, bool* sent) {
  bool reached = false;
  Error late =
      make_error(Errc::deadline_exceeded, request.url.str() + " did not answer within " +
                                              std::to_string(request.limit.count()) + " ms");
  auto talking = within(talk(request, reached), request.limit, std::move(late));
  auto answer = co_await std::move(talking);
  if (sent != nullptr) *sent = reached;
  co_return answer;
}

std::string excerpt(std::string_view body) {
  std::string out;
  for (char c : body.substr(0, 300)) out += c >= ' ' && c <= '~' ? c : ' ';
  if (body.size() > 300) out += "...";
  return out.empty() ? "(nothing)" : out;
}

}  // namespace atl::providers
