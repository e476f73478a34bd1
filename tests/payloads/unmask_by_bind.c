// Looks below the masks of /proc: a bind mount that is not recursive shows what the masks cover,
// and unmounting a mask uncovers it. argv: MASKED_FILE
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* masked = need(argc, argv, 1);
  const char* at = scratch_dir();
  if (mount("/proc", at, NULL, MS_BIND, NULL) == 0) {
    umount2(at, MNT_DETACH);
    succeeded("bound /proc without its masks");
  }
  int error = errno;
  if (umount2(masked, MNT_DETACH) == 0) succeeded("took the mask off %s", masked);
  blocked(error);
}
