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

net::Task<Result<EgressSockets>> Runtime::egress_sockets() { co_return EgressSockets{}; }

net::Task<Result<void>> Runtime::prepare(std::string) {
  co_return make_error(Errc::unimplemented, "this runtime has no warm start");
}

net::Task<Result<void>> Runtime::warm(SandboxId) {
  co_return make_error(Errc::failed_precondition, "this runtime has no warm start");
}

void Runtime::on_exit(std::function<void(ExitNotice)> /*handler*/) {}
void Runtime::on_lost(std::function<void()> /*handler*/) {}

}  // namespace atl::runtime
