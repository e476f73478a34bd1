#include "agent/cors.h"

namespace atl::agent {
namespace {

constexpr const char* kExposed =
    "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, Cache-Control, "
    "X-Content-Type-Options";

void add_cors(net::Headers& headers) {
  headers.add("Access-Control-Allow-Origin", "*");
  headers.add("Access-Control-Expose-Headers", kExposed);
}

}  // namespace

bool is_preflight(const net::RequestHead& request) {
  return request.method == "OPTIONS" && request.headers.has("Origin") &&
         request.headers.has("Access-Control-Request-Method");
}

net::Task<void> answer_preflight(net::Exchange& exchange) {
  net::Headers headers{
      {"Access-Control-Allow-Origin", "*"},
      {"Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE"},
      {"Access-Control-Max-Age", "7200"},
      {"Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"}};
  // "*" would not cover Authorization, so the asked-for names are allowed by name.
  const std::string wanted(exchange.request.headers.get("Access-Control-Request-Headers"));
  if (!wanted.empty()) headers.add("Access-Control-Allow-Headers", wanted);
  auto sent = exchange.response.send(204, std::move(headers), "");
  (void)co_await std::move(sent);  // nobody left to tell
}

CorsExchange::CorsExchange(net::Exchange& inner)
    : CorsExchange(inner, std::make_unique<Writer>(inner.response)) {}

CorsExchange::CorsExchange(net::Exchange& inner, std::unique_ptr<Writer> writer)
    : net::Exchange(inner.body, *writer, inner.stream), inner_(inner), writer_(std::move(writer)) {
  request = inner.request;
  listener = inner.listener;
  peer = inner.peer;
}

net::Task<Result<void>> CorsExchange::Writer::send(int status, net::Headers headers,
                                                   std::string body) {
  add_cors(headers);
  return inner_.send(status, std::move(headers), std::move(body));
}

net::Task<Result<void>> CorsExchange::Writer::start(int status, net::Headers headers,
                                                    std::optional<std::uint64_t> length) {
  add_cors(headers);
  return inner_.start(status, std::move(headers), length);
}

}  // namespace atl::agent
