#include "runtime/runtime.h"

namespace atl::runtime {

net::Task<Result<Usage>> Runtime::usage(SandboxId /*id*/) {
  co_return make_error(Errc::unimplemented, "this runtime does not count usage");
}

net::Task<Result<void>> Runtime::kill(SandboxId /*id*/) {
  co_return make_error(Errc::unimplemented, "this runtime cannot kill without destroying");
}

net::Task<Result<void>> Runtime::set_network(SandboxId /*id*/, NetworkPolicy /*policy*/) {
  co_return make_error(Errc::unimplemented, "this runtime has no network policies");
}

net::Task<Result<void>> Runtime::set_memory(SandboxId /*id*/, std::uint64_t /*bytes*/) {
  co_return make_error(Errc::unimplemented, "this runtime cannot change limits");
}

net::Task<Result<EgressSockets>> Runtime::egress_sockets() { co_return EgressSockets{}; }

net::Task<Result<void>> Runtime::prepare(std::string) {
  co_return make_error(Errc::unimplemented, "this runtime has no warm start");
}

net::Task<Result<void>> Runtime::warm(SandboxId) {
  co_return make_error(Errc::failed_precondition, "this runtime has no warm start");
}

namespace {
Error no_memory_files() {
  return make_error(Errc::unimplemented, "this runtime does not write memory to files");
}
}  // namespace

net::Task<Result<MemorySupport>> Runtime::memory_support() {
  co_return MemorySupport{false, no_memory_files().message, ""};
}
net::Task<Result<Written>> Runtime::dump(SandboxId) { co_return no_memory_files(); }
net::Task<Result<void>> Runtime::cancel_dump(SandboxId) { co_return Result<void>(); }
net::Task<Result<Written>> Runtime::snapshot(SandboxId, SnapshotId) { co_return no_memory_files(); }
net::Task<Result<Written>> Runtime::snapshot_disk(SandboxId, SnapshotId) {
  co_return no_memory_files();
}
net::Task<Result<void>> Runtime::remove_snapshot(SnapshotId) { co_return no_memory_files(); }
net::Task<Result<std::vector<ListedSnapshot>>> Runtime::list_snapshots() {
  co_return std::vector<ListedSnapshot>();
}

SnapshotId new_snapshot_id() { return "s" + random_base36(20); }

bool is_snapshot_id(std::string_view text) {
  return text.size() == 21 && text.front() == 's' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == text.npos;
}

void Runtime::on_exit(std::function<void(ExitNotice)> /*handler*/) {}
void Runtime::on_lost(std::function<void()> /*handler*/) {}

}  // namespace atl::runtime
