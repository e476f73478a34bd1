// Inside of the engine: one sandbox and the timers.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <optional>

#include "engine/completion.h"
#include "engine/engine.h"

namespace atl::engine {

struct Engine::Sandbox {
  explicit Sandbox(store::SandboxRecord r) : record(std::move(r)) {}

  // Guarded by Engine::mutex_.
  store::SandboxRecord record;
  std::shared_ptr<Route> route;  // while it runs
  std::string default_user;
  std::string mask_request_host;
  bool abandoned = false;        // nobody waits for it any more: kill it as soon as it is made
  std::optional<Error> failure;  // of the create or the kill; set before the completion is
  KillReason reason = KillReason::request;
  std::string killed_by;  // key id

  // Thread-safe by themselves.
  Completion made;  // created, or failed to
  Completion gone;  // destroyed, or the first attempt failed
};

struct Engine::Timers {
  // Made by the loops on their own strands; touch by posting to their executors.
  std::shared_ptr<net::asio::steady_timer> expiry;
  std::shared_ptr<net::asio::steady_timer> housekeeping;
  bool stop = false;
  net::asio::thread_pool disk{1};  // checkpoints wait for the disk
};

}  // namespace atl::engine
