#include "runtime/jail/faults.h"

#include <cerrno>
#include <chrono>
#include <thread>

#include "sys/process.h"

namespace atl::jail {

void die_now() { sys::kill_self(); }

Result<void> Faults::before(std::string_view step) const {
  if (dies_before(step)) die_now();
  if (late_at == step) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (fail_at == step) return errno_error("failure asked for", EIO);
  return {};
}

void Faults::after(std::string_view step) const {
  if (dies_after(step)) die_now();
}

std::vector<std::string> operation_steps() {
  return {"destroy.unmark",   "destroy.kill",
          "destroy.cgroup",   "destroy.tree",
          "destroy.network",  "destroy.range",
          "kill.signal",      "kill.cgroup",
          "kill.layers",      "kill.unmounted",
          "kill.seal",        "freeze.ask",
          "freeze.frozen",    "thaw",
          "prepare.start",    "warm.send",
          "warm.done",        "dump.start",
          "dump.write",       "dump.sync",
          "dump.publish",     "dump.end",
          "drop_memory",      "snapshot.start",
          "snapshot.begin",   "snapshot.write",
          "snapshot.disk",    "snapshot.flush",
          "snapshot.publish", "remove_snapshot",
          "replace.aside",    "replace.drop",
          "compact"};
}

}  // namespace atl::jail
