// Agent: everything that runs inside a sandbox for its clients, composed in one place.
//
// One thread, one io_context. Two listeners: "host" is a listening Unix socket inherited from the
// launcher, which only the engine can reach; "tcp" is the port that processes inside the sandbox
// see. Every request passes, in this order: CORS, the control-plane gate, the access token, the
// Basic user, then the routes (wire/sandbox-agent.md §2, §6, §10).
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/ca_bundle.h"
#include "agent/state.h"
#include "net/http.h"
#include "rpc/connect.h"

namespace atl::agent {

// How control-plane routes are reached.
enum class ControlPlane {
  host_listener_only,  // in a sandbox: /init, /logs and CONNECT only by the inherited socket
  any_listener,        // bare agent on a developer's machine
};

// The code interpreter; it is there if its file is (agent/interpreter).
struct InterpreterOptions {
  std::string config = "/etc/atoll/interpreter.json";
  std::uint16_t port = 49999;  // 0 = any free one
  std::string kernels = "/run/atoll/kernels";
  std::string user = "user";  // whose kernels they are; the default user if there is no such one
  std::string nursery = "atoll-nursery";  // abstract socket; "" = none
  uid_t nursery_uid = 0;
};

struct AgentOptions {
  std::optional<int> listen_fd;       // a listening socket; the agent takes it
  std::optional<std::uint16_t> port;  // TCP on every address, both families; 0 = any free one
  ControlPlane control_plane = ControlPlane::host_listener_only;
  std::string default_user = "root";
  std::string path =
      "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";  // PATH of processes
  std::map<std::string, std::string> template_vars;  // of every process, unless something sets them
  std::string marker_directory = "/run/e2b";
  TrustStore trust_store;
  std::string hooks_directory = "/etc/atoll";  // has after-fork.d and after-resume.d
  std::string host_files;                      // where etc/hostname is; "" = the root
  InterpreterOptions interpreter;
};

class Agent {
 public:
  Agent(net::asio::io_context& io, AgentOptions options);
  ~Agent();

  // Starts the listeners and the reaper; then run the io_context.
  Result<void> start();
  // The bound TCP port (0 before start or without TCP).
  std::uint16_t port() const;
  // The interpreter's (0 without one).
  std::uint16_t interpreter_port() const;
  AgentState& state();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- the parts, each in its own files ----
class ProcessManager;

// /process.Process/*; `path` is the PATH of processes that ask for none.
void register_process(rpc::Router& router, AgentState& state, ProcessManager& processes,
                      std::string path);
// /filesystem.Filesystem/*
void register_filesystem(rpc::Router& router, AgentState& state);
// /files and /files/compose; false = another path, nothing sent. Checks its own authentication on
// GET and POST /files.
net::Task<bool> handle_files(net::Exchange& exchange, AgentState& state);

}  // namespace atl::agent
