#include "agent/interpreter/answers.h"

#include "agent/interpreter/lines.h"

namespace atl::agent::interpreter {
namespace {

// An answer that cannot be sent has nobody left to read it: the connection is broken and ends.
net::Task<void> send(net::Exchange& exchange, int status, net::Headers headers, std::string body) {
  auto sent =
      exchange.response.send(status, with_origin(exchange, std::move(headers)), std::move(body));
  (void)co_await std::move(sent);
}

}  // namespace

net::Headers with_origin(const net::Exchange& exchange, net::Headers headers) {
  if (exchange.request.headers.has("Origin")) headers.add("Access-Control-Allow-Origin", "*");
  return headers;
}

net::Task<void> send_text(net::Exchange& exchange, int status, std::string text) {
  net::Headers headers{{"Content-Type", "text/plain; charset=utf-8"}};
  return send(exchange, status, std::move(headers), std::move(text));
}

net::Task<void> send_json_text(net::Exchange& exchange, int status, std::string json) {
  net::Headers headers{{"Content-Type", "application/json"}};
  return send(exchange, status, std::move(headers), std::move(json));
}

net::Task<void> send_detail(net::Exchange& exchange, int status, std::string_view detail,
                            std::string allow) {
  net::Headers headers{{"Content-Type", "application/json"}};
  if (!allow.empty()) headers.add("Allow", std::move(allow));
  return send(exchange, status, std::move(headers), R"({"detail":)" + json_quote(detail) + "}");
}

bool is_interpreter_preflight(const net::RequestHead& request) {
  return request.method == "OPTIONS" && request.headers.has("Origin") &&
         request.headers.has("Access-Control-Request-Method");
}

net::Task<void> answer_preflight(net::Exchange& exchange) {
  net::Headers headers{
      {"Content-Type", "text/plain; charset=utf-8"},
      {"Access-Control-Allow-Methods", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"},
      {"Access-Control-Max-Age", "600"}};
  const std::string wanted(exchange.request.headers.get("Access-Control-Request-Headers"));
  if (!wanted.empty()) headers.add("Access-Control-Allow-Headers", wanted);
  return send(exchange, 200, std::move(headers), "OK");
}

}  // namespace atl::agent::interpreter
