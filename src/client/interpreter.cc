#include "client/interpreter.h"

#include "base/encoding.h"
#include "client/agent_call.h"
#include "client/server.h"

namespace atl::client {
namespace {

constexpr std::size_t kMaxRefusal = 64 << 10;
constexpr std::size_t kMaxContexts = 4 << 20;

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
  // A proxy's words, for a sandbox or a port that is not there.
  if (auto parsed = parse_json(text); parsed.ok()) {
    if (std::string message = text_of(*parsed, "message"); !message.empty())
      text = std::move(message);
  }
  if (status == 502 && text.find("sandbox was not found") != std::string::npos)
    return make_error(Errc::not_found, std::move(text));
  if (status == 502 && text.find("port is not open") != std::string::npos)
    return make_error(Errc::not_found, "the sandbox has no code interpreter: " + text);
  const Errc code = status == 404                   ? Errc::not_found
                    : status == 502                 ? Errc::unavailable
                    : status >= 400 && status < 500 ? Errc::invalid_argument
                                                    : Errc::internal;
  if (text.empty()) text = "the code interpreter answered " + std::to_string(status);
  return make_error(code, std::move(text));
}

Result<Context> context_of(const json::value& value) {
  Context context{text_of(value, "id"), text_of(value, "language"), text_of(value, "cwd")};
  if (context.id.empty()) return make_error(Errc::data_loss, "the answer is no context");
  return context;
}

net::Task<Result<json::value>> call_interpreter(Inside inside, std::string method,
                                                std::string target,
                                                std::optional<json::value> body) {
  auto connecting = inside.connect(kInterpreterPort);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  const Guard guard(client.stream(), kCallTime);
  net::RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.headers = inside.headers(kInterpreterPort);
  if (body) head.headers.set("Content-Type", "application/json");
  auto asking =
      client.request(std::move(head), body ? json::serialize(*body) : std::string(), kMaxContexts);
  auto answer = co_await std::move(asking);
  if (!answer.ok() && guard.fired())
    co_return make_error(Errc::unavailable, "the code interpreter does not answer");
  if (!answer.ok()) co_return std::move(answer).error();
  if (answer->head.status != 200) co_return refusal(answer->head.status, std::move(answer->body));
  auto parsed = parse_json(answer->body);
  if (!parsed.ok()) co_return make_error(Errc::data_loss, "unreadable answer of the interpreter");
  co_return parsed;
}

net::Task<Result<void>> change_context(Inside inside, std::string method, std::string target) {
  auto calling = call_interpreter(std::move(inside), std::move(method), std::move(target), {});
  ATOLL_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

}  // namespace

net::Task<Result<Execution>> execute(net::HttpClient& client, ExecuteRequest request,
                                     ExecutionEvents events,
                                     std::function<net::Task<void>()> after_piece) {
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
    if (after_piece) {
      auto waiting = after_piece();
      co_await std::move(waiting);
    }
  }
  co_return std::move(reader).finish();
}

net::Task<Result<Context>> create_context(Inside inside, std::string language,
                                          std::string directory) {
  json::object body;
  if (!language.empty()) body["language"] = language;
  if (!directory.empty()) body["cwd"] = directory;
  auto calling = call_interpreter(std::move(inside), "POST", "/contexts", std::move(body));
  ATOLL_CO_TRY_ASSIGN(const json::value answer, co_await std::move(calling));
  co_return context_of(answer);
}

net::Task<Result<std::vector<Context>>> list_contexts(Inside inside) {
  auto calling = call_interpreter(std::move(inside), "GET", "/contexts", {});
  ATOLL_CO_TRY_ASSIGN(const json::value answer, co_await std::move(calling));
  const json::array* list = answer.if_array();
  if (list == nullptr) co_return make_error(Errc::data_loss, "the answer is no list of contexts");
  std::vector<Context> out;
  for (const json::value& each : *list) {
    ATOLL_CO_TRY_ASSIGN(Context context, context_of(each));
    out.push_back(std::move(context));
  }
  co_return out;
}

net::Task<Result<void>> restart_context(Inside inside, std::string id) {
  return change_context(std::move(inside), "POST", "/contexts/" + percent_encode(id) + "/restart");
}

net::Task<Result<void>> remove_context(Inside inside, std::string id) {
  return change_context(std::move(inside), "DELETE", "/contexts/" + percent_encode(id));
}

}  // namespace atl::client
