// Calls the kernel with numbers of the x32 interface, which a filter may not know.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  long r = syscall(0x40000000 | SYS_getpid);
  if (r == getpid()) succeeded("getpid through x32");
  blocked(errno);
}
