// Sends SIGUSR1 to a process of the host, by number and by pidfd. argv: PID
#include "payload.h"

static void attack(int argc, char** argv) {
  int pid = atoi(need(argc, argv, 1));
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
  if (getpid() == pid) inconclusive("the number is our own");
  if (kill(pid, SIGUSR1) == 0) succeeded("signalled %d", pid);
  int error = errno;
  int fd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (fd >= 0 && syscall(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0) == 0) {
    succeeded("signalled %d by pidfd", pid);
  }
  if (syscall(SYS_tgkill, pid, pid, SIGUSR1) == 0) succeeded("signalled %d by tgkill", pid);
  blocked(error);
}
