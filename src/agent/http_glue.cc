#include "agent/http_glue.h"

namespace atl::agent {
namespace {

net::Headers with(net::Headers headers, const net::Headers& extra) {
  for (const auto& field : extra) headers.add(field.name, field.value);
  return headers;
}

}  // namespace

std::string plain_error_body(int status, std::string_view message) {
  json::object body;
  body["code"] = status;
  body["message"] = message;
  return json::serialize(body);
}

// In all three, an answer that cannot be sent has nobody left to read it: the connection is broken
// and ends.

net::Task<void> send_plain_error(net::Exchange& exchange, int status, std::string message,
                                 net::Headers extra) {
  net::Headers headers{{"Content-Type", "application/json; charset=utf-8"},
                       {"X-Content-Type-Options", "nosniff"}};
  auto sent = exchange.response.send(status, with(std::move(headers), extra),
                                     plain_error_body(status, message));
  (void)co_await std::move(sent);
}

net::Task<void> send_json(net::Exchange& exchange, int status, json::value value,
                          net::Headers extra) {
  net::Headers headers{{"Content-Type", "application/json"}};
  auto sent =
      exchange.response.send(status, with(std::move(headers), extra), json::serialize(value));
  (void)co_await std::move(sent);
}

net::Task<void> send_empty(net::Exchange& exchange, int status, net::Headers extra) {
  auto sent = exchange.response.send(status, std::move(extra), "");
  (void)co_await std::move(sent);
}

}  // namespace atl::agent
