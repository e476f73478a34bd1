// Sets up an io_uring, whose operations pass by the seccomp filter.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  char parameters[256] = {0};
  verdict(syscall(425 /* io_uring_setup */, 4, parameters), "set up an io_uring");
}
