#include "engine/engine.h"

namespace atl::engine {
namespace {

Error not_yet(std::string_view what) {
  return make_error(Errc::unimplemented, std::string(what) + " is not supported by this server");
}

}  // namespace

net::Task<Result<void>> Engine::pause(Caller /*caller*/, SandboxId /*id*/, bool /*keep_memory*/) {
  co_return not_yet("pausing sandboxes");
}

net::Task<Result<SandboxInfo>> Engine::resume(ResumeCommand /*command*/) {
  co_return not_yet("resuming sandboxes");
}

net::Task<Result<void>> Engine::update_network(Caller /*caller*/, SandboxId /*id*/,
                                               NetworkUpdate /*update*/) {
  co_return not_yet("changing the network");
}

net::Task<KillCount> Engine::kill_team(std::string /*team_id*/) { co_return KillCount{}; }

std::map<std::string, std::size_t> Engine::running_counts() const { return {}; }

Result<std::vector<store::MetricRecord>> Engine::metrics(const Caller& /*caller*/,
                                                         const SandboxId& /*id*/,
                                                         std::optional<Timestamp> /*start*/,
                                                         std::optional<Timestamp> /*end*/) const {
  return not_yet("metrics");
}

std::map<std::string, store::MetricRecord> Engine::last_metrics(
    const Caller& /*caller*/, const std::vector<SandboxId>& /*ids*/) const {
  return {};
}

net::Task<Result<std::vector<store::LogRecord>>> Engine::logs(Caller /*caller*/, SandboxId /*id*/,
                                                              LogQuery /*query*/) {
  co_return not_yet("logs");
}

net::Task<Result<std::shared_ptr<Route>>> Engine::wake(WakeRequest request) {
  co_return make_error(Errc::not_found, "sandbox " + request.id.str() + " does not run");
}

Statistics Engine::statistics() const { return {}; }

}  // namespace atl::engine
