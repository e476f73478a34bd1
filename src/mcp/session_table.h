// MCP sessions: what a connection of a client has agreed on. They live in memory only: a client
// whose session is gone (404) begins with `initialize` again. Sandboxes belong to the sessions of
// src/session, which outlive these.
//
// All may be called on any thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/completion.h"
#include "mcp/stop.h"
#include "mcp/tools/bench.h"

namespace atl::mcp {

class McpSession {
 public:
  McpSession(std::string id, std::string version, Setting setting)
      : id_(std::move(id)), version_(std::move(version)), setting_(std::move(setting)) {}

  const std::string& id() const { return id_; }
  const std::string& version() const { return version_; }
  const Setting& setting() const { return setting_; }

  // A call has begun under this id (id_key). failed_precondition: one with that id is under way;
  // resource_exhausted: too many are.
  Result<void> begin_call(const std::string& id, std::shared_ptr<Stop> stop);
  void end_call(const std::string& id);
  // Stops the call. One that is not there yet is stopped when it comes: its request and this one
  // travel by different connections.
  void cancel(const std::string& id);
  // Stops all calls, also those that begin later: the session ends. What is set when none is under
  // way: one that makes a sandbox goes on until it is made.
  std::shared_ptr<engine::Completion> cancel_all();
  bool busy() const;

  // A tool works, or has worked, in the sandbox of the session, or has asked for one.
  void mark_used();
  bool used() const;

  static constexpr std::size_t kMaxCalls = 32;

 private:
  const std::string id_;
  const std::string version_;
  const Setting setting_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Stop>, std::less<>> calls_;
  std::deque<std::string> cancelled_early_;
  std::shared_ptr<engine::Completion> quiet_;  // the session has ended; set without calls
  bool used_ = false;
};

class SessionTable {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    std::size_t all = 4096;
    std::size_t per_team = 256;
    std::chrono::seconds idle{3600};
  };

  explicit SessionTable(Limits limits, std::function<Clock::time_point()> now = Clock::now)
      : limits_(limits), now_(std::move(now)) {}

  // The idle ones go first; then the one of the team that was not used for the longest time makes
  // room. resource_exhausted: other teams have them all.
  Result<void> add(std::shared_ptr<McpSession> session);
  // Of that team; null if there is none.
  std::shared_ptr<McpSession> find(std::string_view id, std::string_view team);
  std::shared_ptr<McpSession> remove(std::string_view id, std::string_view team);
  // How many of the team work in the sandbox of that key.
  std::size_t users_of(std::string_view team, std::string_view key);
  std::size_t size();

 private:
  struct Row {
    std::shared_ptr<McpSession> session;
    Clock::time_point used_at;
  };
  void drop_idle();

  const Limits limits_;
  const std::function<Clock::time_point()> now_;
  std::mutex mutex_;
  std::map<std::string, Row, std::less<>> rows_;
};

}  // namespace atl::mcp
