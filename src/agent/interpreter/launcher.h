// Launcher: makes kernels. Python is forked from the nursery when there is one and the packages are
// the template's; everything else is a program that is started.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/interpreter/kernel.h"
#include "agent/interpreter/languages.h"
#include "agent/interpreter/nursery.h"
#include "agent/interpreter/packages.h"
#include "agent/log_ring.h"
#include "agent/reaper.h"
#include "agent/state.h"
#include "agent/users.h"

namespace atl::agent::interpreter {

struct LauncherOptions {
  std::string kernels = "/run/atoll/kernels";
  std::string user = "user";  // whose kernels they are; the default user if there is no such one
  std::string path;           // PATH of processes
  std::string root = "/";     // where Python's packages are looked for
  std::string nursery = "atoll-nursery";  // abstract name; "" = none
  uid_t nursery_uid = 0;
};

class Launcher {
 public:
  // All outlive the launcher.
  Launcher(net::asio::io_context& io, AgentState& state, Reaper& reaper, LogRing& logs,
           LauncherOptions options);

  // Waits for a nursery from now on; `connected` is called when one comes.
  void listen(std::function<void()> connected);

  // Ends the nursery, if there is one; another may come at any time. Kernels stay.
  net::Task<void> end_nursery();

  // A kernel that has not been sent `start`. Errors: not_found (what is missing), others; the
  // message is for people.
  net::Task<Result<std::shared_ptr<Kernel>>> launch(const Language& language,
                                                    const std::string& context);
  // The variables of a kernel: those of a command of the same user, the language's, `more`.
  Result<std::vector<std::string>> environment(const Language& language,
                                               const std::map<std::string, std::string>& more);

 private:
  Result<User> user() const;
  Result<std::shared_ptr<Kernel>> start_cold(const Language& language);
  net::Task<Result<std::shared_ptr<Kernel>>> start_forked();
  void watch(const std::shared_ptr<Kernel>& kernel, const Language& language,
             const std::string& context, std::string_view how);

  net::asio::io_context& io_;
  AgentState& state_;
  Reaper& reaper_;
  LogRing& logs_;
  LauncherOptions options_;
  std::unique_ptr<Nursery> nursery_;
  std::unique_ptr<PackageStamps> packages_;
};

}  // namespace atl::agent::interpreter
