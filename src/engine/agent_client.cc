#include "engine/agent_client.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "net/http.h"

namespace atl::engine {
namespace {

constexpr std::size_t kAnswerLimit = 64 * 1024;
constexpr std::size_t kLogsLimit = 1 << 20;

// At most 200 printable characters of what came from inside a sandbox.
std::string excerpt(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 200)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

// Cut to `limit` bytes, not in the middle of a UTF-8 sequence.
std::string cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return std::string(text.substr(0, limit));
}

std::string as_text(const json::value& value) {
  if (value.is_string()) return cut(value.get_string(), kMaxAgentField);
  return cut(json::serialize(value), kMaxAgentField);
}

std::string_view string_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

std::optional<AgentLogs::Entry> parse_entry(const json::value& value, Timestamp latest) {
  if (!value.is_object()) return std::nullopt;
  const json::object& object = value.get_object();
  const json::value* seq = object.if_contains("seq");
  if (seq == nullptr || !seq->is_int64()) return std::nullopt;
  AgentLogs::Entry entry;
  entry.seq = seq->get_int64();
  entry.record.at =
      std::min(parse_rfc3339(string_of(object, "timestamp")).value_or(latest), latest);
  entry.record.level =
      store::parse_log_level(string_of(object, "level")).value_or(store::LogLevel::info);
  entry.record.message = cut(string_of(object, "message"), kMaxAgentMessage);
  const json::value* fields = object.if_contains("fields");
  if (fields != nullptr && fields->is_object()) {
    for (const auto& field : fields->get_object()) {
      if (entry.record.fields.size() >= kMaxAgentFields) break;
      entry.record.fields[cut(field.key(), kMaxAgentField)] = as_text(field.value());
    }
  }
  return entry;
}

json::object to_object(const AgentInit& init) {
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
  if (!init.start_command.empty()) body["startCommand"] = init.start_command;
  if (!init.ca_bundle.empty()) body["caBundle"] = init.ca_bundle;
  return body;
}

// Of a request whose answer is 204.
enum class Then : std::uint8_t { done, wait_for_end };
net::Task<Result<void>> post(std::unique_ptr<net::Stream> stream, std::string path,
                             std::string body, std::chrono::milliseconds limit,
                             Then then = Then::done) {
  stream->set_read_timeout(limit);
  stream->set_write_timeout(limit);
  net::HttpClient client(std::move(stream));
  net::RequestHead head;
  head.method = "POST";
  head.target = path;
  if (!body.empty()) head.headers.add("Content-Type", "application/json");
  auto request = client.request(std::move(head), std::move(body), kAnswerLimit);
  auto answer = co_await std::move(request);
  const std::string what = path.substr(1) + " of the agent";
  if (!answer.ok()) co_return std::move(answer).error().with(what);
  const int status = answer->head.status;
  if (status == 204) {
    std::array<char, 64> rest{};
    while (then == Then::wait_for_end) {
      auto reading = client.stream().read_some(rest);
      auto n = co_await std::move(reading);
      if (!n.ok() && n.error().code == Errc::deadline_exceeded)
        co_return std::move(n).error().with(what + ": it keeps the connection");
      if (!n.ok() || *n == 0) break;
    }
    co_return Result<void>();
  }
  co_return make_error(
      status == 404 ? Errc::unimplemented : Errc::internal,
      what + ": it answered " + std::to_string(status) + " " + excerpt(answer->body));
}

}  // namespace

std::string encode(const AgentInit& init) { return json::serialize(to_object(init)); }

std::string encode(const AgentWake& wake) {
  json::object body = to_object(wake.init);
  body["forked"] = wake.forked;
  if (!wake.seed.empty()) body["seed"] = wake.seed;
  if (!wake.hostname.empty()) body["hostname"] = wake.hostname;
  return json::serialize(body);
}

net::Task<Result<void>> send_init(std::unique_ptr<net::Stream> stream, AgentInit init,
                                  std::chrono::milliseconds limit) {
  auto posting = post(std::move(stream), "/init", encode(init), limit);
  co_return co_await std::move(posting);
}

net::Task<Result<void>> send_suspend(std::unique_ptr<net::Stream> stream,
                                     std::chrono::milliseconds limit) {
  auto posting = post(std::move(stream), "/suspend", {}, limit, Then::wait_for_end);
  co_return co_await std::move(posting);
}

net::Task<Result<void>> announce_suspend(std::unique_ptr<net::Stream> stream,
                                         std::chrono::milliseconds limit) {
  auto posting = post(std::move(stream), "/suspend?soon=1", {}, limit);
  co_return co_await std::move(posting);
}

net::Task<Result<void>> send_wake(std::unique_ptr<net::Stream> stream, AgentWake wake,
                                  std::chrono::milliseconds limit) {
  auto posting = post(std::move(stream), "/wake", encode(wake), limit);
  co_return co_await std::move(posting);
}

net::Task<Result<void>> ask_health(std::unique_ptr<net::Stream> stream,
                                   std::chrono::milliseconds limit) {
  stream->set_read_timeout(limit);
  stream->set_write_timeout(limit);
  net::HttpClient client(std::move(stream));
  net::RequestHead head;
  head.target = "/health";
  auto request = client.request(std::move(head), {}, kAnswerLimit);
  auto answer = co_await std::move(request);
  if (!answer.ok()) co_return std::move(answer).error().with("health of the agent");
  if (answer->head.status != 204) {
    co_return make_error(Errc::internal,
                         "health of the agent: it answered " + std::to_string(answer->head.status));
  }
  co_return Result<void>();
}

net::Task<Result<void>> ask_warm(std::unique_ptr<net::Stream> stream,
                                 std::chrono::milliseconds limit) {
  stream->set_read_timeout(limit);
  stream->set_write_timeout(limit);
  net::HttpClient client(std::move(stream));
  net::RequestHead head;
  head.method = "POST";
  head.target = "/warm";
  auto request = client.request(std::move(head), {}, kAnswerLimit);
  auto answer = co_await std::move(request);
  if (!answer.ok()) co_return std::move(answer).error().with("warm-up by the agent");
  if (answer->head.status == 204) co_return Result<void>();
  co_return make_error(answer->head.status == 404 ? Errc::not_found : Errc::unavailable,
                       "warm-up by the agent: it answered " + std::to_string(answer->head.status) +
                           " " + excerpt(answer->body));
}

Result<AgentLogs> parse_agent_logs(std::string_view body, std::int64_t after, Timestamp latest) {
  auto parsed = parse_json(body);
  if (!parsed.ok()) return std::move(parsed).error().with("logs of the agent");
  const json::value* entries =
      parsed->is_object() ? parsed->get_object().if_contains("entries") : nullptr;
  if (entries == nullptr || !entries->is_array())
    return make_error(Errc::invalid_argument, "logs of the agent: there are no entries");
  AgentLogs logs;
  for (const json::value& value : entries->get_array()) {
    if (logs.entries.size() >= kMaxAgentLines) break;
    auto entry = parse_entry(value, latest);
    if (!entry || entry->seq <= after) continue;
    after = entry->seq;
    logs.entries.push_back(std::move(*entry));
  }
  return logs;
}

net::Task<Result<AgentLogs>> ask_logs(std::unique_ptr<net::Stream> stream, std::string access_token,
                                      std::int64_t after, std::chrono::milliseconds limit) {
  stream->set_read_timeout(limit);
  stream->set_write_timeout(limit);
  net::HttpClient client(std::move(stream));
  net::RequestHead head;
  head.target = "/logs?after=" + std::to_string(after);
  if (!access_token.empty()) head.headers.add("X-Access-Token", std::move(access_token));
  auto request = client.request(std::move(head), {}, kLogsLimit);
  auto answer = co_await std::move(request);
  if (!answer.ok()) co_return std::move(answer).error().with("logs of the agent");
  if (answer->head.status == 404) co_return make_error(Errc::not_found, "the agent keeps no logs");
  if (answer->head.status != 200) {
    co_return make_error(Errc::internal,
                         "logs of the agent: it answered " + std::to_string(answer->head.status));
  }
  co_return parse_agent_logs(answer->body, after, now());
}

}  // namespace atl::engine
