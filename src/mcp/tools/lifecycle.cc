#include <fmt/format.h>

#include "mcp/tools/tool.h"

namespace atl::mcp {

// Neither is cancelled half-way: a sandbox that is being paused or made would be left so.

net::Task<Outcome> pause_session(Bench& bench, const json::object&) {
  auto pausing = bench.sessions().pause(bench.setting().caller, bench.setting().key);
  const auto paused = co_await std::move(pausing);
  if (!paused.ok() && paused.error().code == Errc::not_found) {
    co_return ToolError{"no_session",
                        "there is no sandbox to pause: none was used in this session yet"};
  }
  if (!paused.ok()) co_return to_session_error(paused.error());
  Outcome outcome;
  outcome.fields["paused"] = true;
  outcome.texts.push_back("The sandbox is paused; the next call of a tool wakes it up.");
  co_return outcome;
}

net::Task<Outcome> reset_session(Bench& bench, const json::object&) {
  if (bench.stop().requested()) co_return stopped_error();
  auto removing = bench.sessions().remove(bench.setting().caller, bench.setting().key);
  const auto removed = co_await std::move(removing);
  if (!removed.ok()) co_return to_session_error(removed.error());
  bench.forget();
  auto making = bench.inside();
  auto made = co_await std::move(making);
  if (!made.ok()) co_return std::move(made).error();
  Outcome outcome;
  outcome.texts.push_back(fmt::format("The old sandbox is gone; {} is new and empty.", made->id));
  co_return outcome;
}

}  // namespace atl::mcp
