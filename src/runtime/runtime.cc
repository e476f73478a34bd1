#include "runtime/runtime.h"

namespace atl::runtime {

net::Task<Result<Usage>> Runtime::usage(SandboxId /*id*/) {
  co_return make_error(Errc::unimplemented, "this runtime does not count usage");
}

net::Task<Result<void>> Runtime::kill(SandboxId /*id*/) {
  co_return make_error(Errc::unimplemented, "this runtime cannot kill without destroying");
}

void Runtime::on_exit(std::function<void(ExitNotice)> /*handler*/) {}
void Runtime::on_lost(std::function<void()> /*handler*/) {}

}  // namespace atl::runtime
