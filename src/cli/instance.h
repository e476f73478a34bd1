// Instance: one engine's claim on a home. A server is the instance "main"; every `atoll run` is one
// of its own ("run-…"), so that it never meets a server's sandboxes.
//
// The claim is a lock on HOME/state/NAME.lock, held for the life of the process: a lock that is
// free belongs to a dead one, and what that left behind may be removed.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>

#include "cli/home.h"
#include "runtime/jail/jail_runtime.h"
#include "sys/fd.h"

namespace atl::cli {

class Instance {
 public:
  // already_exists: another process has it.
  static Result<Instance> claim(const Home& home, std::string name, ServerUser owner);
  // The claim of the supervisor, which this process shares.
  static Instance inherit(const Home& home, std::string name, int lock);
  Instance(Instance&&) = default;
  // Removes the lock of a run; a server's stays.
  ~Instance();

  const std::string& name() const { return name_; }
  int lock() const { return lock_.get(); }

 private:
  Instance(std::string name, std::string path, sys::UniqueFd lock)
      : name_(std::move(name)), path_(std::move(path)), lock_(std::move(lock)) {}
  std::string name_;
  std::string path_;
  sys::UniqueFd lock_;
};

inline constexpr std::string_view kMainInstance = "main";

// The warden for an instance. Preconditions: root, no threads yet.
Result<std::unique_ptr<runtime::JailRuntime>> start_runtime(boost::asio::io_context& io,
                                                            const Home& home,
                                                            const std::string& instance,
                                                            ServerUser user);
// Destroys what runs that were killed left behind, and tells how many. Preconditions: root, no
// threads yet.
Result<std::size_t> sweep_dead_runs(const Home& home, ServerUser user);

}  // namespace atl::cli
