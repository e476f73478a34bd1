// Makes a user namespace, the door to most kernel bugs of recent years: unshare, clone, clone3.
#include <linux/sched.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
  if (child == 0) _exit(0);
  if (child > 0) succeeded("clone made a user namespace");
  struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
  child = (pid_t)syscall(SYS_clone3, &args, sizeof args);
  if (child == 0) _exit(0);
  if (child > 0) succeeded("clone3 made a user namespace");
  if (errno != ENOSYS && errno != EPERM) blocked(errno);
  verdict(unshare(CLONE_NEWUSER), "unshare made a user namespace");
}
