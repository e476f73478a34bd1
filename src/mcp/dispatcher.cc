#include "mcp/dispatcher.h"

#include "base/log.h"
#include "mcp/schema.h"
#include "mcp/tools/tool.h"

namespace atl::mcp {
namespace {

constexpr std::string_view kInstructions =
    "Tools of one Linux sandbox that belongs to this session. It is made by the first call, keeps "
    "files, processes and interpreter state between calls, and is paused when it is idle. The home "
    "directory is /home/user; relative paths are relative to it. Files that must outlive the "
    "sandbox go to the workspace with save_to_workspace.";

json::object list_tools() { return json::object{{"tools", tool_definitions()}}; }

// A call that is being answered, for as long as this lives.
class Registered {
 public:
  Registered(std::shared_ptr<McpSession> session, std::string id)
      : session_(std::move(session)), id_(std::move(id)) {}
  ~Registered() { session_->end_call(id_); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  std::shared_ptr<McpSession> session_;
  std::string id_;
};

net::Task<Outcome> guarded_call(Bench& bench, std::string name, json::object arguments) {
  try {
    auto calling = call_tool(bench, std::move(name), std::move(arguments));
    co_return co_await std::move(calling);
  } catch (const std::exception& e) {
    log::error("a tool threw", {{"what", e.what()}});
  }
  Outcome outcome(ToolError{"internal_error", "Internal error. The server's log tells more."});
  outcome.fields["session_id"] = bench.setting().key;
  co_return outcome;
}

}  // namespace

std::string asked_version(const Message& request) {
  const json::value* version = request.params.if_contains("protocolVersion");
  return version != nullptr && version->is_string() ? std::string(version->get_string()) : "";
}

json::object Dispatcher::initialize(const std::string& version) const {
  json::object out;
  out["protocolVersion"] = version;
  out["capabilities"] = json::object{{"tools", json::object{{"listChanged", false}}}};
  out["serverInfo"] =
      json::object{{"name", "atoll"}, {"title", "Atoll sandbox"}, {"version", version_}};
  out["instructions"] = kInstructions;
  return out;
}

net::Task<std::optional<json::object>> Dispatcher::answer(std::shared_ptr<McpSession> session,
                                                          Message request,
                                                          std::shared_ptr<Stop> stop) {
  if (request.method == "ping") co_return make_response(request.id, json::object());
  if (request.method == "tools/list") {
    if (const json::value* cursor = request.params.if_contains("cursor");
        cursor != nullptr && !cursor->is_null()) {
      co_return make_failure(request.id, RpcCode::invalid_params,
                             "there is one page of tools only; leave the cursor out");
    }
    co_return make_response(request.id, list_tools());
  }
  if (request.method == "tools/call") {
    auto calling = call(std::move(session), std::move(request), std::move(stop));
    co_return co_await std::move(calling);
  }
  if (request.method == "initialize")
    co_return make_failure(request.id, RpcCode::invalid_request, "the session is initialised");
  co_return make_failure(request.id, RpcCode::method_not_found,
                         "no method '" + request.method.substr(0, 100) + "'");
}

net::Task<std::optional<json::object>> Dispatcher::call(std::shared_ptr<McpSession> session,
                                                        Message request,
                                                        std::shared_ptr<Stop> stop) {
  const json::value* name = request.params.if_contains("name");
  if (name == nullptr || !name->is_string())
    co_return make_failure(request.id, RpcCode::invalid_params, "\"name\" must be a string");
  const std::string tool(name->get_string());
  if (find_tool(tool) == nullptr) {
    co_return make_failure(request.id, RpcCode::invalid_params,
                           "Unknown tool: " + tool.substr(0, 100));
  }
  json::object arguments;
  if (json::value* given = request.params.if_contains("arguments"); given && !given->is_null()) {
    if (!given->is_object()) {
      co_return make_failure(request.id, RpcCode::invalid_params,
                             "\"arguments\" must be an object");
    }
    arguments = std::move(given->get_object());
  }
  const std::string id = id_key(request.id);
  if (auto begun = session->begin_call(id, stop); !begun.ok()) {
    const bool twice = begun.error().code == Errc::failed_precondition;
    co_return make_failure(request.id, twice ? RpcCode::invalid_request : RpcCode::unavailable,
                           begun.error().message);
  }
  const Registered registered(session, id);
  Bench bench(sessions_, workspaces_, locks_, session->setting(), stop,
              [session] { session->mark_used(); });
  auto running = guarded_call(bench, tool, std::move(arguments));
  const Outcome outcome = co_await std::move(running);
  if (stop->requested()) co_return std::nullopt;
  co_return make_response(request.id, outcome.to_json());
}

void Dispatcher::notify(McpSession& session, const Message& notification) const {
  if (notification.method != "notifications/cancelled") return;
  const json::value* id = notification.params.if_contains("requestId");
  if (id != nullptr && (id->is_string() || id->is_int64() || id->is_uint64()))
    session.cancel(id_key(*id));
}

}  // namespace atl::mcp
