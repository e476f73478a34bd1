// Metrics and logs of sandboxes.
#include "api_server/encode.h"
#include "api_server/handlers.h"
#include "api_server/query.h"

namespace atl::api {

Result<Reply> Handlers::sandbox_metrics(Call& call) {
  ATOLL_TRY_ASSIGN(const SandboxId id, parse_path_id(call.params[0]));
  ATOLL_TRY_ASSIGN(const TimeRange range, decode_metric_range(call.request));
  ATOLL_TRY_ASSIGN(const auto samples,
                   engine_.metrics(call.who.caller, id, range.start, range.end));
  json::array out;
  for (const store::MetricRecord& sample : samples) out.emplace_back(metric_json(sample));
  return json_reply(200, out);
}

Result<Reply> Handlers::all_metrics(Call& call) {
  ATOLL_TRY_ASSIGN(const auto ids, decode_sandbox_ids(call.request));
  json::object sandboxes;
  for (const auto& [id, sample] : engine_.last_metrics(call.who.caller, ids))
    sandboxes[id] = metric_json(sample);
  json::object out;
  out["sandboxes"] = std::move(sandboxes);
  return json_reply(200, out);
}

net::Task<Result<Reply>> Handlers::logs_v1(Call& call) {
  ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
  ATOLL_CO_TRY_ASSIGN(engine::LogQuery query, decode_logs_v1(call.request));
  auto reading = engine_.logs(call.who.caller, std::move(id), std::move(query));
  ATOLL_CO_TRY_ASSIGN(const auto entries, co_await std::move(reading));
  json::array lines;
  json::array structured;
  for (const store::LogRecord& entry : entries) {
    lines.emplace_back(log_line_json(entry));
    structured.emplace_back(log_entry_json(entry));
  }
  json::object out;
  out["logs"] = std::move(lines);
  out["logEntries"] = std::move(structured);
  co_return json_reply(200, out);
}

net::Task<Result<Reply>> Handlers::logs_v2(Call& call) {
  ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
  ATOLL_CO_TRY_ASSIGN(engine::LogQuery query, decode_logs_v2(call.request));
  // An empty page still tells whether the sandbox is there.
  const bool nothing = query.limit == 0;
  if (nothing) query.limit = 1;
  auto reading = engine_.logs(call.who.caller, std::move(id), std::move(query));
  ATOLL_CO_TRY_ASSIGN(const auto entries, co_await std::move(reading));
  json::array structured;
  if (!nothing) {
    for (const store::LogRecord& entry : entries) structured.emplace_back(log_entry_json(entry));
  }
  json::object out;
  out["logs"] = std::move(structured);
  co_return json_reply(200, out);
}

}  // namespace atl::api
