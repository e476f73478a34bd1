// Looks for a process of the host: by a marker in its command line, and by its number with
// kill(pid, 0). argv: HALF_OF_MARKER OTHER_HALF HOST_PID
#include "payload.h"

static void attack(int argc, char** argv) {
  // The marker comes in two halves, so that no command line of our own holds it.
  char marker[256];
  snprintf(marker, sizeof marker, "%s%s", need(argc, argv, 1), need(argc, argv, 2));
  int host_pid = atoi(need(argc, argv, 3));
  DIR* proc = opendir("/proc");
  if (!proc) inconclusive("/proc: %s", strerror(errno));
  int seen = 0;
  for (struct dirent* e; (e = readdir(proc));) {
    if (!is_number(e->d_name)) continue;
    ++seen;
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
    if (path_holds(path, marker) == 1) succeeded("process %s of the host is visible", e->d_name);
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/status", host_pid);
  if (kill(host_pid, 0) == 0 && access(path, F_OK) != 0) {
    succeeded("process %d exists for kill() and is not in /proc", host_pid);
  }
  if (!seen) inconclusive("/proc shows no process");
  blocked_because("ESRCH none of %d visible processes is the host's", seen);
}
