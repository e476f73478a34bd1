// Interpreter: the contexts of a sandbox.
//
// The defaults of Python and JavaScript are listed from the start, those of other languages from
// their first use on. A default that was removed comes back with its next use. Owned by Agent,
// touched by its one thread only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/interpreter/context.h"
#include "agent/interpreter/launcher.h"
#include "agent/interpreter/request.h"

namespace atl::agent::interpreter {

inline constexpr std::size_t kMaxContexts = 128;
inline constexpr std::size_t kMaxWaiting = 128;  // runs in the queue of one context
inline constexpr std::string_view kDefaultCwd = "/home/user";

class Interpreter {
 public:
  // `languages` are those of the template; all others outlive it.
  Interpreter(net::asio::io_context& io, AgentState& state, Reaper& reaper, LogRing& logs,
              LauncherOptions options, std::vector<std::string> languages);
  ~Interpreter();

  // Waits for a nursery from now on.
  void start();
  // The sandbox knows who it is: kernels that wait for their variables get them.
  void initialised();
  // Waits until the kernel of the default Python context is warm. Errors: unavailable.
  net::Task<Result<void>> warm();

  // Connections of clients are about to end because the sandbox is paused: runs outlive them.
  void expect_suspend();
  // Before the sandbox's memory is written: the nursery is ended, since it is the zygote's memory
  // and has no state, and runs under way outlive their clients.
  net::Task<void> suspend();
  // This sandbox is a copy of another now: every kernel gets a seed of its own, and the variables
  // that say whose it is.
  void forked(std::string_view seed);

  const std::vector<std::shared_ptr<Context>>& contexts() const { return contexts_; }  // by age
  std::shared_ptr<Context> find(std::string_view id) const;  // null: there is none
  // The default of a language (normalised), made if need be. Errors: not_found for languages that
  // are not there, resource_exhausted.
  Result<std::shared_ptr<Context>> default_of(const std::string& language);
  // Errors: as above.
  Result<std::shared_ptr<Context>> create(const CreateRequest& request);
  void remove(const std::shared_ptr<Context>& context);

 private:
  Result<const Language*> language(const std::string& name) const;
  Result<std::shared_ptr<Context>> add(ContextSpec spec);
  void nursery_connected();

  net::asio::io_context& io_;
  const AgentState& state_;
  std::vector<std::string> languages_;
  Launcher launcher_;
  bool initialised_ = false;
  std::vector<std::shared_ptr<Context>> contexts_;
  std::map<std::string, std::weak_ptr<Context>> defaults_;
};

}  // namespace atl::agent::interpreter
