// The start command of a template: run once per boot as the default user, its output in the log.
#pragma once

#include <string>

#include "agent/log_ring.h"
#include "agent/process_manager.h"
#include "agent/state.h"

namespace atl::agent {

inline constexpr const char* kStartTag = "start_command";

// Variables of a process of `user`. Later ones win: the template's, what the agent knows, the
// sandbox's variables, the request's.
template <class Requested>
std::vector<std::string> process_environment(const AgentState& state, const std::string& path,
                                             const User& user, const Requested& requested) {
  std::map<std::string, std::string> merged = state.template_vars();
  merged["PATH"] = path;
  merged["HOME"] = user.home;
  merged["USER"] = merged["LOGNAME"] = user.name;
  for (const auto& [name, value] : state.env_vars()) merged[name] = value;
  for (const auto& [name, value] : requested) merged[name] = value;
  std::vector<std::string> out;
  out.reserve(merged.size());
  for (const auto& [name, value] : merged) out.push_back(name + "=" + value);
  return out;
}

// All outlive the process. A command that cannot be started is an entry of the log.
void run_start_command(net::asio::io_context& io, const std::string& command,
                       const AgentState& state, ProcessManager& processes, const std::string& path,
                       LogRing& logs);

}  // namespace atl::agent
