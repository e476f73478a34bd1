// Makes a hard link to a file of the host (by path, and by a magic link of /proc) and reads it.
// argv: PATH SECRET
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  const char* secret = need(argc, argv, 2);
  // The link must be on the file's own file system, so its neighbourhood is tried first.
  char beside[4096];
  snprintf(beside, sizeof beside, "%s.link-%d", path, getpid());
  int error = 0;
  if (link(path, beside) == 0) {
    int r = path_holds(beside, secret);
    unlink(beside);
    if (r == 1) succeeded("a hard link holds the secret");
  } else {
    error = errno;
  }
  char magic[4096];
  snprintf(magic, sizeof magic, "/proc/1/root%s", path);
  snprintf(beside, sizeof beside, "%s/link", scratch_dir());
  if (linkat(AT_FDCWD, magic, AT_FDCWD, beside, AT_SYMLINK_FOLLOW) == 0 &&
      path_holds(beside, secret) == 1) {
    succeeded("a hard link through /proc/1/root holds the secret");
  }
  blocked(error);
}
