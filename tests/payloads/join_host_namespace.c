// Joins a namespace of a process of the host. argv: PID KIND
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* pid = need(argc, argv, 1);
  const char* kind = need(argc, argv, 2);
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/ns/%s", pid, kind);
  int fd = open(path, O_RDONLY);
  if (fd >= 0) verdict(setns(fd, 0), "joined");
  int error = errno;
  int pidfd = (int)syscall(SYS_pidfd_open, atoi(pid), 0);
  if (pidfd >= 0) verdict(setns(pidfd, CLONE_NEWUTS), "joined by pidfd");
  blocked(error);
}
