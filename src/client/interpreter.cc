#include "client/interpreter.h"

namespace atl::client {
namespace {

constexpr std::size_t kMaxRefusal = 64 << 10;

std::string body_of(const ExecuteRequest& request) {
  json::object body;
  body["code"] = request.code;
  if (!request.context_id.empty()) body["context_id"] = request.context_id;
  if (!request.language.empty()) body["language"] = request.language;
  if (!request.env_vars.empty()) {
    json::object vars;
    for (const auto& [name, value] : request.env_vars) vars[name] = value;
    body["env_vars"] = std::move(vars);
  }
  return json::serialize(body);
}

Error refusal(int status, std::string text) {
  const Errc code = status == 404                   ? Errc::not_found
                    : status == 502                 ? Errc::unavailable
                    : status >= 400 && status < 500 ? Errc::invalid_argument
                                                    : Errc::internal;
  if (text.empty()) text = "the code interpreter answered " + std::to_string(status);
  return make_error(code, std::move(text));
}

}  // namespace

net::Task<Result<Execution>> execute(net::HttpClient& client, ExecuteRequest request,
                                     ExecutionEvents events) {
  net::RequestHead head;
  head.method = "POST";
  head.target = "/execute";
  head.headers = request.headers;
  head.headers.set("Content-Type", "application/json");
  const std::string body = body_of(request);
  auto sending = client.write_request(head, body);
  ATOLL_CO_TRY(co_await std::move(sending));
  auto heading = client.read_head();
  ATOLL_CO_TRY_ASSIGN(const net::ResponseHead answer, co_await std::move(heading));
  if (answer.status != 200) {
    auto reading = client.body().read_all(kMaxRefusal);
    ATOLL_CO_TRY_ASSIGN(std::string why, co_await std::move(reading));
    co_return refusal(answer.status, std::move(why));
  }
  ExecutionReader reader(std::move(events));
  std::string buffer(64 << 10, '\0');
  for (;;) {
    auto reading = client.body().read_some(buffer);
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(reading));
    if (n == 0) break;
    ATOLL_CO_TRY(reader.feed(std::string_view(buffer).substr(0, n)));
  }
  co_return std::move(reader).finish();
}

}  // namespace atl::client
