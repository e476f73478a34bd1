#include "mcp/tools/bench.h"

#include "base/ids.h"
#include "client/time_limit.h"

namespace atl::mcp {
namespace {

net::Task<void> keep_run(client::Inside inside, client::Command command,
                         std::optional<Result<client::Finished>>& into) {
  auto running = client::run_command(std::move(inside), std::move(command));
  into.emplace(co_await std::move(running));
}

}  // namespace

ToolError stopped_error() { return {"cancelled", "the call was cancelled"}; }

net::Task<Got<client::Inside>> Bench::inside() {
  if (!acquired_) {
    if (stop_->requested()) co_return stopped_error();
    on_use_();
    // Not to be cancelled: the sandbox would be half made.
    auto acquiring = sessions_.acquire(setting_.caller, setting_.key, setting_.options);
    auto acquired = co_await std::move(acquiring);
    if (!acquired.ok()) co_return to_session_error(acquired.error());
    acquired_.emplace(std::move(*acquired));
  }
  if (stop_->requested()) co_return stopped_error();
  co_return acquired_->inside;
}

std::string Bench::workspace_name() const {
  if (!setting_.workspace.empty()) return setting_.workspace;
  if (acquired_ && !acquired_->session.options.workspace.empty())
    return acquired_->session.options.workspace;
  return "default";
}

net::Task<Got<client::Finished>> Bench::run(client::Command command) {
  auto finding = inside();
  auto where = co_await std::move(finding);
  if (!where.ok()) co_return std::move(where).error();
  const client::Marked marked{command.user, command.mark = random_hex(16), 0};
  std::optional<Result<client::Finished>> finished;
  auto running = stop_->run(keep_run(*where, std::move(command), finished));
  const Stop::Ended ended = co_await std::move(running);
  if (ended == Stop::Ended::stopped) {
    // A process goes on when its client leaves.
    auto killing = client::kill_all_of(*where, marked);
    (void)co_await std::move(killing);  // its own time is over soon enough
    co_return stopped_error();
  }
  if (!finished) co_return ToolError{"internal_error", "the command ended without an answer"};
  if (!finished->ok()) co_return to_tool_error(finished->error());
  co_return std::move(**finished);
}

}  // namespace atl::mcp
