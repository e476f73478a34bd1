// Context: the state of a language that runs build on, and the queue of those runs.
//
// One run at a time, in the order in which they came; a worker coroutine drives them and is there
// only while there are runs. The kernel behind it may be replaced: the context then keeps its id,
// language, directory and variables. Touched by the agent's one thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "agent/interpreter/kernel.h"
#include "agent/interpreter/languages.h"
#include "agent/interpreter/launcher.h"
#include "agent/interpreter/run.h"

namespace atl::agent::interpreter {

struct ContextSpec {
  std::string id;
  const Language* language = nullptr;
  std::string cwd;
  std::map<std::string, std::string> env{};  // on top of the sandbox's
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  // Both outlive it.
  Context(net::asio::io_context& io, Launcher& launcher, ContextSpec spec);

  const ContextSpec& spec() const { return spec_; }
  bool has_kernel() const { return kernel_ && kernel_->alive(); }
  const std::shared_ptr<Kernel>& kernel() const { return kernel_; }
  std::size_t waiting() const { return queue_.size(); }
  bool removed() const { return removed_; }

  // Makes a kernel if there is none, without `start`: what it costs is paid before it is needed.
  void prepare();
  // Sends `start` to the kernel that was or is being prepared, without waiting for it.
  void start_prepared();
  // Waits for a kernel that is ready for runs. Errors are for people.
  net::Task<Result<std::shared_ptr<Kernel>>> ready_kernel();
  // Waits for `warmed`. Errors: unavailable.
  net::Task<Result<void>> warm(Clock::duration time);

  void enqueue(std::shared_ptr<Run> run);
  // What was asked for so far, and for as long as `time` from now, is done even if the clients who
  // asked go away.
  void outlive_clients(Clock::duration time);
  // Its client went away: it is interrupted, or never run, unless it outlives its client.
  void abandon(const std::shared_ptr<Run>& run);
  // Ends the current run and the kernel, and waits for the next one.
  net::Task<Result<void>> restart();
  // Ends everything. Nothing may be asked of it any more.
  void remove();

 private:
  static net::Task<void> work(std::shared_ptr<Context> self);
  net::Task<void> serve(std::shared_ptr<Run> run);
  net::Task<void> stop(std::shared_ptr<Run> run, std::shared_ptr<Kernel> kernel);
  // Launches if need be; with Bring::ready also starts and waits until it is ready.
  enum class Bring { launched, ready };
  void bring(Bring how);
  static net::Task<void> bring_up(std::shared_ptr<Context> self, Bring how, unsigned generation);
  net::Task<Result<void>> make_ready(std::shared_ptr<Kernel> kernel);
  void drop_kernel();
  void end_run(const std::shared_ptr<Run>& run);

  net::asio::io_context& io_;
  Launcher& launcher_;
  ContextSpec spec_;
  std::shared_ptr<Kernel> kernel_;
  unsigned generation_ = 0;  // of kernels; what an older one did is of no interest
  bool bringing_ = false;
  bool start_wanted_ = false;
  Result<void> brought_;  // how the last try ended
  bool removed_ = false;
  bool working_ = false;
  std::deque<std::shared_ptr<Run>> queue_;
  std::shared_ptr<Run> current_;
  Clock::time_point outlives_until_{};
  std::string notice_;  // for the next run
  Event changed_;
};

}  // namespace atl::agent::interpreter
