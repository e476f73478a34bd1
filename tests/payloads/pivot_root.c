// Exchanges the root of the mount namespace. With an invalid new root the kernel answers EINVAL or
// EBUSY, but only to a caller that it would have let.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  const char* at = scratch_dir();
  long r = syscall(SYS_pivot_root, at, at);
  if (r < 0 && errno == EBUSY) errno = EINVAL;
  verdict_reached(r, EINVAL, "the kernel would exchange the root");
}
