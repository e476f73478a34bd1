#include "runtime/jail/faults.h"

#include <cerrno>

#include "sys/process.h"

namespace atl::jail {

void die_now() { sys::kill_self(); }

Result<void> Faults::before(std::string_view step) const {
  if (dies_before(step)) die_now();
  if (fail_at == step) return errno_error("failure asked for", EIO);
  return {};
}

void Faults::after(std::string_view step) const {
  if (dies_after(step)) die_now();
}

std::vector<std::string> operation_steps() {
  return {"destroy.unmark", "destroy.kill",  "destroy.cgroup", "destroy.tree",  "destroy.network",
          "destroy.range",  "kill.signal",   "kill.cgroup",    "kill.layers",   "kill.unmounted",
          "freeze.ask",     "freeze.frozen", "thaw",           "prepare.start", "warm.send",
          "warm.done"};
}

}  // namespace atl::jail
