// A Runtime for unit tests: its "sandboxes" are HTTP servers of this process. Only tests link it.
//
// Each sandbox has an agent that answers /init and /health, opens tunnels on CONNECT to the ports
// that a test opened, and gives every other request to the handler that the test set.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "net/http_server.h"
#include "runtime/runtime.h"

namespace atl::engine::testing {

class FakeRuntime final : public runtime::Runtime {
 public:
  explicit FakeRuntime(net::asio::io_context& io) : io_(io) {}

  net::Task<Result<runtime::Created>> create(runtime::SandboxSpec spec) override;
  net::Task<Result<void>> destroy(SandboxId id) override;
  net::Task<Result<void>> freeze(SandboxId id) override;
  net::Task<Result<void>> thaw(SandboxId id) override;
  net::Task<Result<std::vector<runtime::Listed>>> list() override;
  net::Task<Result<std::unique_ptr<net::Stream>>> connect_agent(SandboxId id) override;
  net::Task<Result<runtime::Usage>> usage(SandboxId id) override;
  net::Task<Result<void>> kill(SandboxId id) override;
  net::Task<Result<void>> set_network(SandboxId id, runtime::NetworkPolicy policy) override;
  net::Task<Result<void>> set_memory(SandboxId id, std::uint64_t bytes) override;
  net::Task<Result<void>> prepare(std::string template_id) override;
  net::Task<Result<void>> warm(SandboxId id) override;
  net::Task<Result<runtime::MemorySupport>> memory_support() override;
  net::Task<Result<runtime::Written>> dump(SandboxId id) override;
  net::Task<Result<void>> cancel_dump(SandboxId id) override;
  net::Task<Result<runtime::Written>> snapshot(SandboxId id, runtime::SnapshotId snapshot) override;
  net::Task<Result<runtime::Written>> snapshot_disk(SandboxId id,
                                                    runtime::SnapshotId snapshot) override;
  net::Task<Result<void>> remove_snapshot(runtime::SnapshotId snapshot) override;
  net::Task<Result<std::vector<runtime::ListedSnapshot>>> list_snapshots() override;
  void on_exit(std::function<void(runtime::ExitNotice)> handler) override;

  // ---- what a test sets before, or looks at after ----
  net::Handler handler;                     // requests other than /init, /health and CONNECT
  std::map<int, std::uint16_t> open_ports;  // port in the sandbox -> TCP port of the test
  std::chrono::milliseconds create_takes{0};
  std::chrono::milliseconds freeze_takes{0};
  std::chrono::milliseconds thaw_takes{0};
  std::chrono::milliseconds kill_takes{0};
  std::chrono::milliseconds destroy_takes{0};
  int failing_creates = 0;
  int failing_destroys = 0;
  bool durable = false;  // memory can go to files
  std::chrono::milliseconds dump_takes{0};
  std::uint64_t usage_bytes = 32 << 20;
  static constexpr std::uint64_t kMemoryBytes = 7 << 20;  // of a dump or a snapshot
  int init_status = 204;
  int warm_status = 404;   // what agents answer to POST /warm
  std::string agent_logs;  // what agents answer to /logs; empty: 404
  // By name of the operation (create, destroy, freeze, thaw, kill, set_network, set_memory, init,
  // prepare, warm, suspend, wake, dump, snapshot, snapshot_disk, remove_snapshot): how often it
  // fails from now on, and with what.
  std::map<std::string, int> failing;
  Errc failing_with = Errc::internal;
  std::string failing_says;      // empty: "NAME fails"
  std::string fails_after;       // an operation that has its effect and says that it failed: dump
  bool restores_use_up = false;  // a create with kept memory uses that up and fails
  // An operation that never comes back, as if the server died there: before it had an effect, or
  // after.
  std::string hangs_before;
  std::string hangs_after;
  int hung() const;
  // Operations of this name wait, before they have an effect, until `release`.
  void hold(std::string name);
  void release();

  void add_leftover(const SandboxId& id);
  void exit(const SandboxId& id);
  // What is there of one; nullopt: nothing.
  std::optional<runtime::Condition> condition(const SandboxId& id) const;
  void set_condition(const SandboxId& id, runtime::Condition condition);
  Ipv4 address(const SandboxId& id) const;
  runtime::NetworkPolicy network(const SandboxId& id) const;
  std::uint64_t memory(const SandboxId& id) const;  // its limit
  std::vector<std::string> calls() const;           // names of the operations, in order
  std::set<std::string> alive() const;
  std::vector<std::string> inits() const;
  std::vector<runtime::SandboxSpec> specs() const;
  int dials() const;
  int connects() const;                    // CONNECT requests that agents got
  int suspends() const;                    // POST /suspend that agents got
  std::vector<std::string> wakes() const;  // bodies of POST /wake
  int dumping() const;
  int most_dumping() const;  // at one time
  std::size_t snapshots() const;

 private:
  struct Agent {
    std::unique_ptr<net::HttpServer> server;
    std::uint16_t port = 0;
    runtime::Condition condition = runtime::Condition::running;
    Ipv4 address;
    runtime::NetworkPolicy network;
    std::uint64_t memory = 0;
    std::chrono::microseconds cpu{0};
    runtime::SnapshotId snapshot;  // that it was made from
    bool let_go = false;           // nobody has dialled since POST /suspend
    bool dumping = false;
    bool cancelled = false;
  };
  // Notes the call; hangs or fails when a test wants that.
  net::Task<Result<void>> step(std::string name, std::chrono::milliseconds takes = {});
  net::Task<void> wait_while_held(std::string name);
  net::Task<void> stuck();
  net::Task<void> after(std::string name);
  net::Task<void> stop_agent(std::shared_ptr<Agent> agent);
  std::shared_ptr<Agent> find(const SandboxId& id) const;
  net::Task<void> answer(net::Exchange& exchange, SandboxId id);
  net::Task<void> answer_step(net::Exchange& exchange, std::string name, SandboxId id);
  net::Task<Result<void>> write_memory(SandboxId id, std::string name);
  net::Task<Result<void>> write_until_done(std::shared_ptr<Agent> agent, std::string name);
  Result<void> check_memory_locked(const runtime::SandboxSpec& spec);
  net::Task<void> tunnel(net::Exchange& exchange);

  net::asio::io_context& io_;
  mutable std::mutex mutex_;
  std::map<SandboxId, std::shared_ptr<Agent>> agents_;
  std::vector<std::string> inits_;
  std::vector<runtime::SandboxSpec> specs_;
  std::function<void(runtime::ExitNotice)> on_exit_;
  std::vector<std::string> calls_;
  std::string held_;
  std::uint32_t last_address_ = 0x0a640000;
  std::map<runtime::SnapshotId, runtime::ListedSnapshot> snapshots_;
  std::vector<std::string> wakes_;
  int suspends_ = 0;
  int dumping_ = 0;
  int most_dumping_ = 0;
  int hung_ = 0;
  int dials_ = 0;
  int connects_ = 0;
};

}  // namespace atl::engine::testing
