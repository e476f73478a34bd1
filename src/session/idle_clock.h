// IdleClock: when to look at a session next, because it may have been idle or unused for too long.
// One timer for all of them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "base/ids.h"
#include "engine/expiry.h"
#include "net/task.h"
#include "session/peers.h"

namespace atl::session {

class IdleClock {
 public:
  // `look` is called when a session is due, outside of any lock; it has to set the next time, or to
  // remove the sandbox. The wall clock may be set while we wait, so that is looked at once a
  // second.
  IdleClock(std::function<Timestamp()> clock, std::function<void(SandboxId, Slot)> look);
  ~IdleClock();
  void set(const SandboxId& sandbox, Slot slot, Timestamp when);
  void remove(const SandboxId& sandbox);
  std::size_t size() const;

  // Runs until `stop`. On a strand.
  net::Task<void> run();
  void stop();

 private:
  struct Timer;
  void wake_locked();

  const std::function<Timestamp()> clock_;
  const std::function<void(SandboxId, Slot)> look_;
  mutable std::mutex mutex_;  // guards all below
  engine::ExpiryQueue queue_;
  std::map<SandboxId, Slot> slots_;
  std::shared_ptr<Timer> timer_;
  bool stop_ = false;
};

}  // namespace atl::session
