#include "engine/agent_init.h"

#include "base/json.h"
#include "net/http.h"

namespace atl::engine {
namespace {

constexpr std::size_t kAnswerLimit = 64 * 1024;

// At most 200 printable characters of what came from inside a sandbox.
std::string excerpt(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 200)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

}  // namespace

std::string encode(const AgentInit& init) {
  json::object envs;
  for (const auto& [name, value] : init.envs) envs[name] = value;
  json::object body;
  if (!init.access_token.empty()) body["accessToken"] = init.access_token;
  body["envVars"] = std::move(envs);
  body["defaultUser"] = init.default_user;
  body["sandboxId"] = init.sandbox_id;
  body["templateId"] = init.template_id;
  body["memoryLimit"] = init.memory_bytes;
  body["cpuCount"] = init.cpu_count;
  body["timestamp"] = to_rfc3339(init.timestamp);
  return json::serialize(body);
}

net::Task<Result<void>> send_init(std::unique_ptr<net::Stream> stream, AgentInit init,
                                  std::chrono::milliseconds limit) {
  stream->set_read_timeout(limit);
  stream->set_write_timeout(limit);
  net::HttpClient client(std::move(stream));
  net::RequestHead head;
  head.method = "POST";
  head.target = "/init";
  head.headers.add("Content-Type", "application/json");
  auto request = client.request(std::move(head), encode(init), kAnswerLimit);
  auto answer = co_await std::move(request);
  if (!answer.ok()) co_return std::move(answer).error().with("init of the agent");
  if (answer->head.status != 204) {
    co_return make_error(Errc::internal, "init of the agent: it answered " +
                                             std::to_string(answer->head.status) + " " +
                                             excerpt(answer->body));
  }
  co_return Result<void>();
}

}  // namespace atl::engine
