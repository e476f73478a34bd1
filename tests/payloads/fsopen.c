// Mounts with the file descriptor calls: fsopen, fsconfig, fsmount, move_mount.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  int context = (int)syscall(430 /* fsopen */, "tmpfs", 0);
  if (context < 0) blocked(errno);
  if (syscall(431 /* fsconfig */, context, 6 /* create */, NULL, NULL, 0) < 0) blocked(errno);
  int mounted = (int)syscall(432 /* fsmount */, context, 0, 0);
  if (mounted < 0) blocked(errno);
  const char* at = scratch_dir();
  long r = syscall(429 /* move_mount */, mounted, "", AT_FDCWD, at, 4);
  if (r == 0) umount2(at, MNT_DETACH);
  succeeded("made a tmpfs with fsopen");
}
