// Bench: where one tool call works: the session, its sandbox, its workspace. Made for the call, on
// the strand of its connection.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/commands.h"
#include "client/inside.h"
#include "engine/commands.h"
#include "mcp/edit_locks.h"
#include "mcp/outcome.h"
#include "mcp/stop.h"
#include "session/sessions.h"
#include "workspace/workspaces.h"

namespace atl::mcp {

// What all calls of an MCP session share.
struct Setting {
  engine::Caller caller;
  std::string key;  // of the session whose sandbox the tools work in
  session::Options options;
  std::string workspace;  // empty: the one of the session, else "default"
};

class Bench {
 public:
  // All outlive it. No workspaces: this server keeps none. `on_use` is called before the sandbox is
  // asked for.
  Bench(session::Sessions& sessions, workspace::Workspaces* workspaces, EditLocks& locks,
        Setting setting, std::shared_ptr<Stop> stop, std::function<void()> on_use)
      : sessions_(sessions),
        workspaces_(workspaces),
        locks_(locks),
        setting_(std::move(setting)),
        stop_(std::move(stop)),
        on_use_(std::move(on_use)) {}

  const Setting& setting() const { return setting_; }
  session::Sessions& sessions() { return sessions_; }
  workspace::Workspaces* workspaces() { return workspaces_; }
  Stop& stop() { return *stop_; }

  // Nobody else of the session changes the file meanwhile.
  net::Task<EditLocks::Held> lock(const std::string& path) {
    return locks_.take(setting_.caller.team_id + '\n' + setting_.key + '\n' + path);
  }

  // The session's sandbox, running: reused, resumed or made. Once per call; not for one that was
  // stopped.
  net::Task<Got<client::Inside>> inside();
  // Where its files go. After `inside`.
  std::string workspace_name() const;
  // Forgets what `inside` found: the sandbox was thrown away.
  void forget() { acquired_.reset(); }
  const std::optional<session::Acquired>& acquired() const { return acquired_; }

  // A program inside with these arguments, without a shell; killed when the call is stopped or its
  // time is over (`timed_out`).
  net::Task<Got<client::Finished>> run(client::Command command);

 private:
  session::Sessions& sessions_;
  workspace::Workspaces* workspaces_;
  EditLocks& locks_;
  Setting setting_;
  std::shared_ptr<Stop> stop_;
  std::function<void()> on_use_;
  std::optional<session::Acquired> acquired_;
};

// The call was stopped. Nobody reads it.
ToolError stopped_error();

}  // namespace atl::mcp
