// Clones a part of the mount tree into a detached one and attaches it elsewhere: open_tree,
// move_mount.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  enum { kClone = 1, kEmptyFrom = 4 };
  int tree = (int)syscall(428 /* open_tree */, AT_FDCWD, "/proc", kClone | O_CLOEXEC);
  if (tree < 0) blocked(errno);
  const char* at = scratch_dir();
  long r = syscall(429 /* move_mount */, tree, "", AT_FDCWD, at, kEmptyFrom);
  int error = errno;
  if (r == 0) umount2(at, MNT_DETACH);
  if (r == 0) succeeded("cloned /proc and attached it");
  errno = error;
  succeeded("cloned /proc into a detached tree (attaching it: %s)", strerror(errno));
}
