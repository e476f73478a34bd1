// Theory of operation. A request is worked off by a coroutine beside the handler, on the strand of
// its connection (`work_off`). The handler meanwhile writes signs of life; a third coroutine waits
// for the client to go away and then stops the call. The handler returns when both have ended, so
// neither outlives the exchange. Cancelling from another connection reaches the call by the
// session's table of calls (McpSession::cancel).
#include "mcp/http_service.h"

#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "engine/side_task.h"
#include "mcp/protocol/sse.h"
#include "mcp/protocol/version.h"
#include "net/last_write.h"
#include "net/origin.h"

namespace atl::mcp {
namespace {

constexpr int kPost = 0, kDelete = 1;
constexpr std::chrono::seconds kCallsEnd{20};  // of a session that ends
constexpr api::ServiceRoute kRoutes[] = {
    {"POST", "/mcp", kPost, api::Auth::team, api::BodyMode::streamed},
    {"DELETE", "/mcp", kDelete, api::Auth::team, api::BodyMode::whole},
};

api::Reply with_message(int status, const json::value& message) {
  api::Reply reply{status, {{"Content-Type", "application/json"}}, json::serialize(message)};
  reply.headers.add("Access-Control-Expose-Headers", "Mcp-Session-Id");
  return reply;
}

api::Reply refuse(int status, RpcCode code, std::string_view message, json::value id = nullptr) {
  return with_message(status, make_failure(std::move(id), code, message));
}

// ---- what the request says ----

struct Accepts {
  bool json = false;
  bool events = false;
};

// Parameters (";q=0.9") do not matter to us.
Accepts accepts(const net::Headers& headers) {
  Accepts out;
  bool any = false;
  for (const auto& field : headers) {
    if (!net::iequals(field.name, "Accept")) continue;
    any = true;
    std::string_view rest = field.value;
    while (!rest.empty()) {
      std::string_view item = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), item.size() + 1));
      item = item.substr(0, item.find(';'));
      while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
      while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
      if (item == "*/*" || net::iequals(item, "application/json") || item == "application/*")
        out.json = true;
      if (item == "*/*" || net::iequals(item, "text/event-stream") || item == "text/*")
        out.events = true;
    }
  }
  if (!any) out.json = true;
  return out;
}

std::string option(const net::RequestHead& request, std::string_view header,
                   std::string_view parameter) {
  if (const auto value = request.headers.find(header)) return std::string(*value);
  return request.query_param(parameter).value_or("");
}

Result<Setting> setting_of(const api::ServiceCall& call, const std::string& id) {
  const net::RequestHead& request = call.exchange.request;
  Setting out;
  out.caller = call.who.caller;
  out.key = option(request, "X-Atoll-Session", "session");
  if (out.key.empty()) out.key = "mcp-" + id;
  if (auto name = option(request, "X-Atoll-Template", "template"); !name.empty())
    out.options.template_reference = std::move(name);
  if (auto name = option(request, "X-Atoll-Workspace", "workspace"); !name.empty())
    out.workspace = std::move(name);
  out.options.workspace = out.workspace;
  const std::string internet = option(request, "X-Atoll-Internet", "internet");
  if (internet == "off" || internet == "false") {
    out.options.allow_internet = false;
  } else if (!internet.empty() && internet != "on" && internet != "true") {
    return make_error(Errc::invalid_argument, "internet is 'on' or 'off'");
  }
  return out;
}

// ---- work ----

struct Work {
  std::shared_ptr<McpSession> session;
  std::vector<Parsed> messages;
  std::shared_ptr<Stop> stop;
  std::vector<json::object> answers;
};

net::Task<void> work_off(Dispatcher& dispatcher, std::shared_ptr<Work> work) {
  for (Parsed& parsed : work->messages) {
    if (const auto* malformed = std::get_if<Malformed>(&parsed)) {
      work->answers.push_back(make_failure(*malformed));
      continue;
    }
    Message& message = std::get<Message>(parsed);
    if (message.kind != Message::Kind::request) continue;
    auto answering = dispatcher.answer(work->session, std::move(message), work->stop);
    if (auto answer = co_await std::move(answering)) work->answers.push_back(std::move(*answer));
  }
}

net::Task<void> stop_when_gone(net::Stream& stream, std::shared_ptr<Stop> stop) {
  auto waiting = stream.wait_peer_closed();
  co_await std::move(waiting);
  stop->request();
}

// The token by which the client wants to hear of progress; null if it does not.
json::value progress_token(const std::vector<Parsed>& messages) {
  const auto* message = messages.size() == 1 ? std::get_if<Message>(&messages[0]) : nullptr;
  const json::value* meta = message ? message->params.if_contains("_meta") : nullptr;
  const json::object* fields = meta ? meta->if_object() : nullptr;
  const json::value* token = fields ? fields->if_contains("progressToken") : nullptr;
  if (!token || !(token->is_string() || token->is_int64() || token->is_uint64())) return nullptr;
  return *token;
}

std::string sign_of_life(const json::value& token, std::chrono::seconds elapsed) {
  if (token.is_null()) return std::string(kSseComment);
  json::object params{{"progressToken", token},
                      {"progress", elapsed.count()},
                      {"message", "running for " + std::to_string(elapsed.count()) + " s"}};
  return sse_event(json::serialize(make_notification("notifications/progress", std::move(params))));
}

net::Task<Result<api::Reply>> answer_by_json(engine::SideTask& worker, std::shared_ptr<Work> work,
                                             bool batch) {
  while (!co_await worker.wait(std::chrono::hours(1))) {
  }
  if (batch) {
    json::array all;
    for (json::object& answer : work->answers) all.emplace_back(std::move(answer));
    co_return with_message(200, all);
  }
  if (work->answers.empty()) co_return refuse(200, RpcCode::cancelled, "the request was cancelled");
  co_return with_message(200, work->answers.front());
}

net::Task<Result<api::Reply>> answer_by_events(net::ResponseWriter& response,
                                               engine::SideTask& worker, std::shared_ptr<Work> work,
                                               json::value token, std::chrono::milliseconds beat) {
  const auto began = std::chrono::steady_clock::now();
  net::Headers headers{{"Content-Type", "text/event-stream"},
                       {"Cache-Control", "no-cache, no-transform"},
                       {"X-Accel-Buffering", "no"},
                       {"Access-Control-Allow-Origin", "*"},
                       {"Access-Control-Expose-Headers", "Mcp-Session-Id"}};
  auto starting = response.start(200, std::move(headers), std::nullopt);
  bool reached = (co_await std::move(starting)).ok();
  if (!reached) work->stop->request();
  for (;;) {
    auto waiting = worker.wait(reached ? beat : std::chrono::hours(1));
    if (co_await std::move(waiting)) break;
    if (!reached) continue;
    const auto elapsed =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began);
    const std::string sign = sign_of_life(token, elapsed);
    auto writing = response.write(sign);
    reached = (co_await std::move(writing)).ok();
    if (!reached) work->stop->request();
  }
  if (!reached) co_return api::Reply::already_sent();
  std::string last;
  for (const json::object& answer : work->answers) last += sse_event(json::serialize(answer));
  if (last.empty()) last = kSseComment;  // it was cancelled
  auto finishing = net::finish_with(response, last);
  (void)co_await std::move(finishing);  // a client that is gone needs no answer
  co_return api::Reply::already_sent();
}

bool has_call(const std::vector<Parsed>& messages) {
  return std::any_of(messages.begin(), messages.end(), [](const Parsed& parsed) {
    const auto* message = std::get_if<Message>(&parsed);
    return message && message->kind == Message::Kind::request && message->method == "tools/call";
  });
}

}  // namespace

HttpService::HttpService(session::Sessions& sessions, workspace::Workspaces* workspaces,
                         HttpOptions options)
    : sessions_(sessions),
      options_(std::move(options)),
      dispatcher_(sessions, workspaces, options_.version),
      table_(options_.limits) {}

std::span<const api::ServiceRoute> HttpService::routes() const { return kRoutes; }

net::Task<Result<api::Reply>> HttpService::answer(api::ServiceCall& call) {
  if (!net::is_allowed_origin(call.exchange.request.headers.get("Origin"), options_.domain)) {
    co_return refuse(403, RpcCode::invalid_request,
                     "requests of pages of other sites are refused (Origin)");
  }
  auto answering = call.route.action == kPost ? post(call) : end(call);
  co_return co_await std::move(answering);
}

Result<api::Reply> HttpService::initialize(const api::ServiceCall& call, const Message& request) {
  const std::string id = random_hex(16);
  auto setting = setting_of(call, id);
  if (!setting.ok())
    return refuse(400, RpcCode::invalid_params, setting.error().message, request.id);
  const std::string version(negotiate_version(asked_version(request)));
  auto session = std::make_shared<McpSession>(id, version, std::move(*setting));
  if (auto added = table_.add(session); !added.ok())
    return refuse(429, RpcCode::unavailable, added.error().message, request.id);
  api::Reply reply = with_message(200, make_response(request.id, dispatcher_.initialize(version)));
  reply.headers.add("Mcp-Session-Id", id);
  return reply;
}

net::Task<Result<api::Reply>> HttpService::post(api::ServiceCall& call) {
  const net::Headers& headers = call.exchange.request.headers;
  const Accepts accepted = accepts(headers);
  if (!accepted.json && !accepted.events) {
    co_return refuse(406, RpcCode::invalid_request,
                     "answers are application/json or text/event-stream; accept both");
  }
  auto reading = call.exchange.body.read_all(kMaxMessage);
  auto body = co_await std::move(reading);
  if (!body.ok()) {
    const bool large = body.error().code == Errc::resource_exhausted;
    co_return refuse(large ? 413 : 400, RpcCode::invalid_request, body.error().message);
  }
  Incoming incoming = parse_incoming(*body);
  body->clear();
  body->shrink_to_fit();
  if (!incoming.batch) {
    if (const auto* malformed = std::get_if<Malformed>(&incoming.messages[0]))
      co_return with_message(400, make_failure(*malformed));
    if (const auto& message = std::get<Message>(incoming.messages[0]);
        message.kind == Message::Kind::request && message.method == "initialize")
      co_return initialize(call, message);
  }
  const std::string_view version = headers.get("MCP-Protocol-Version");
  if (!version.empty() && !is_protocol_version(version)) {
    co_return refuse(400, RpcCode::invalid_request,
                     "unsupported MCP-Protocol-Version " + std::string(version.substr(0, 40)));
  }
  const std::string_view id = headers.get("Mcp-Session-Id");
  if (id.empty()) {
    co_return refuse(400, RpcCode::invalid_request,
                     "the header Mcp-Session-Id is missing: begin with initialize");
  }
  auto session = table_.find(id, call.who.caller.team_id);
  if (!session) {
    co_return refuse(404, RpcCode::session_not_found,
                     "there is no such MCP session (any more): begin with initialize");
  }
  if (incoming.batch && !allows_batches(session->version())) {
    co_return refuse(400, RpcCode::invalid_request,
                     "protocol version " + session->version() + " has no batches");
  }
  bool wants_answer = false;
  for (const Parsed& parsed : incoming.messages) {
    const auto* message = std::get_if<Message>(&parsed);
    if (message != nullptr && message->kind == Message::Kind::notification)
      dispatcher_.notify(*session, *message);
    wants_answer |= message == nullptr || message->kind == Message::Kind::request;
  }
  if (!wants_answer) co_return api::Reply{202};

  const auto strand = call.exchange.stream.executor();
  auto work = std::make_shared<Work>();
  work->session = std::move(session);
  work->messages = std::move(incoming.messages);
  work->stop = std::make_shared<Stop>(strand);
  const json::value token = progress_token(work->messages);
  const bool by_events = accepted.events && (has_call(work->messages) || !accepted.json);
  engine::SideTask worker(strand, work_off(dispatcher_, work));
  engine::SideTask watcher(strand, stop_when_gone(call.exchange.stream, work->stop));
  auto answering =
      by_events ? answer_by_events(call.exchange.response, worker, work, token, options_.beat)
                : answer_by_json(worker, work, incoming.batch);
  auto reply = co_await std::move(answering);
  auto stopping = watcher.stop();
  co_await std::move(stopping);
  co_return reply;
}

net::Task<Result<api::Reply>> HttpService::end(api::ServiceCall& call) {
  const net::RequestHead& request = call.exchange.request;
  const std::string what = request.query_param("end").value_or("pause");
  if (what != "pause" && what != "keep" && what != "remove")
    co_return refuse(400, RpcCode::invalid_params, "end is 'pause', 'keep' or 'remove'");
  auto session = table_.remove(request.headers.get("Mcp-Session-Id"), call.who.caller.team_id);
  if (!session)
    co_return refuse(404, RpcCode::session_not_found, "there is no such MCP session (any more)");
  // Making a sandbox is not cancelled. A call that does so now has to come to its end, or the
  // sandbox would be left running.
  const auto quiet = session->cancel_all();
  auto waiting = quiet->wait(kCallsEnd);
  (void)co_await std::move(waiting);  // what still goes on has marked the session as used
  const Setting& setting = session->setting();
  // Somebody else may work in the same sandbox.
  const bool others = table_.users_of(setting.caller.team_id, setting.key) > 0;
  if (!session->used() || what == "keep" || (others && what == "pause"))
    co_return api::no_content();
  auto ending = what == "pause" ? sessions_.pause(setting.caller, setting.key)
                                : sessions_.remove(setting.caller, setting.key);
  auto ended = co_await std::move(ending);
  if (!ended.ok() && ended.error().code != Errc::not_found) co_return std::move(ended).error();
  co_return api::no_content();
}

}  // namespace atl::mcp
