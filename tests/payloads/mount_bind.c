// Binds a directory over another one: the step before hiding, un-masking or re-rooting anything.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  const char* at = scratch_dir();
  long r = mount("/proc", at, NULL, MS_BIND | MS_REC, NULL);
  int error = errno;
  if (r == 0) umount2(at, MNT_DETACH);
  errno = error;
  verdict(r, "bound /proc elsewhere");
}
