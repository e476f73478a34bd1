// JailRuntime: the server's side of atoll-warden. Asks it for jails over the socket pair of
// jail/protocol.h and connects to the agents inside; has no privileges of its own once the server
// has dropped them.
//
// Thread safety: every method may be called from any coroutine of any executor; state lives on a
// strand of the io_context given to start(). Handlers are called on that strand. Failure: errors of
// the warden come back with their code and a message that names the step. If the warden is gone,
// every call fails with `unavailable`; the sandboxes themselves go on.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/runtime.h"

namespace atl::runtime {

struct WardenOptions {
  std::string home;       // ATOLL_HOME
  std::string instance;   // names this server among those of one home: [a-z0-9_-]{1,64}
  std::string templates;  // directory of templates, shared by several homes; empty: HOME/templates
                          // (the warden's --templates DIR)
  std::string tools;      // directory of tools, likewise (--tools DIR); criu/ is one
  std::string warden_path;  // the atoll-warden binary
  std::string agent_path;  // the static atoll-agent binary; copied once into memory that no sandbox
                           // can write
  // The directory of runners, copied likewise; sandboxes have it as /run/atoll/kernels. Empty: that
  // directory is empty.
  std::string kernels_path;
  gid_t server_gid = 0;  // the group the server will have after dropping privileges
  std::chrono::milliseconds request_timeout{30000};
  std::vector<std::string> extra_args;  // further arguments of the warden (tests)
};

class JailRuntime final : public Runtime {
 public:
  // Forks and executes the warden, says hello and waits for its answer (bounded).
  // Preconditions: called as root, before the process has threads and before it drops privileges.
  static Result<std::unique_ptr<JailRuntime>> start(net::asio::io_context& io,
                                                    WardenOptions options);
  // Closes the connection: the warden exits, sandboxes stay.
  ~JailRuntime() override;

  net::Task<Result<Created>> create(SandboxSpec spec) override;
  net::Task<Result<void>> destroy(SandboxId id) override;
  net::Task<Result<void>> freeze(SandboxId id) override;
  net::Task<Result<void>> thaw(SandboxId id) override;
  net::Task<Result<std::vector<Listed>>> list() override;
  net::Task<Result<std::unique_ptr<net::Stream>>> connect_agent(SandboxId id) override;
  net::Task<Result<Usage>> usage(SandboxId id) override;
  net::Task<Result<void>> kill(SandboxId id) override;
  net::Task<Result<void>> set_network(SandboxId id, NetworkPolicy policy) override;
  net::Task<Result<void>> set_memory(SandboxId id, std::uint64_t bytes) override;
  net::Task<Result<EgressSockets>> egress_sockets() override;
  net::Task<Result<void>> prepare(std::string template_id) override;
  net::Task<Result<void>> warm(SandboxId id) override;
  net::Task<Result<MemorySupport>> memory_support() override;
  net::Task<Result<Written>> dump(SandboxId id) override;
  net::Task<Result<void>> cancel_dump(SandboxId id) override;
  net::Task<Result<Written>> snapshot(SandboxId id, SnapshotId snapshot) override;
  net::Task<Result<Written>> snapshot_disk(SandboxId id, SnapshotId snapshot) override;
  net::Task<Result<void>> remove_snapshot(SnapshotId snapshot) override;
  net::Task<Result<std::vector<ListedSnapshot>>> list_snapshots() override;

  void on_exit(std::function<void(ExitNotice)> handler) override;
  // Called once when the connection to the warden is lost.
  void on_lost(std::function<void()> handler) override;

  pid_t warden_pid() const;

  class Client;

 private:
  explicit JailRuntime(std::shared_ptr<Client> client);
  std::shared_ptr<Client> client_;
};

}  // namespace atl::runtime
