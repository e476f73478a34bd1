// Attaches to a process of the host. argv: PID
#include <sys/ptrace.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  int pid = atoi(need(argc, argv, 1));
  long r = ptrace(PTRACE_SEIZE, pid, 0, 0);
  if (r == 0) ptrace(PTRACE_DETACH, pid, 0, 0);
  verdict(r, "attached");
}
