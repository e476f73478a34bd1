#include "providers/provider.h"

namespace atl::providers {

// Artifacts may be large: they are moved.
json::object to_json(Outcome&& outcome) {
  json::object metadata;
  metadata["status"] = outcome.status;
  metadata["time_used_ms"] = outcome.took.count();
  metadata["memory_used_kb"] = outcome.memory_kb ? json::value(*outcome.memory_kb) : nullptr;
  metadata["detail"] = outcome.detail.empty() ? json::value(nullptr) : json::value(outcome.detail);
  metadata["instance_id"] = outcome.instance_id;
  metadata["artifacts"] = std::move(outcome.artifacts);
  metadata["result_present"] = outcome.result.has_value();
  metadata["result_type"] = outcome.result ? json::value(outcome.result_type) : nullptr;
  metadata["result_value"] = std::move(outcome.result).value_or(nullptr);
  json::object out;
  out["stdout"] = outcome.out;
  out["stderr"] = outcome.err;
  out["exit_code"] = outcome.exit_code;
  out["execution_time"] = double(outcome.took.count()) / 1000;
  out["metadata"] = std::move(metadata);
  return out;
}

Error not_initialized(std::string_view provider) {
  return make_error(Errc::failed_precondition,
                    "the provider '" + std::string(provider) + "' is not initialized");
}

Error unsupported(std::string_view provider, Language language, std::span<const Language> all) {
  std::string names;
  for (Language one : all) names += (names.empty() ? "" : ", ") + std::string(name_of(one));
  return make_error(Errc::invalid_argument, "the provider '" + std::string(provider) +
                                                "' does not run " + std::string(name_of(language)) +
                                                "; it runs " + names);
}

Result<void> check_timeout(const Run& run, std::int64_t most) {
  if (run.timeout.count() >= 1 && run.timeout.count() <= most) return {};
  return make_error(Errc::invalid_argument, "'timeout' must be between 1 and " +
                                                std::to_string(most) +
                                                " seconds; the provider's settings say so");
}

Error run_timed_out(const Run& run) {
  return make_error(Errc::deadline_exceeded, "the code did not end within " +
                                                 std::to_string(run.timeout.count()) +
                                                 " s ('timeout') and was stopped");
}

}  // namespace atl::providers
