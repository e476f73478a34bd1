// Changes the shared /dev: replaces, moves, re-owns or re-modes its null node, or adds a file.
// argv: DIRECTORY
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* dir = need(argc, argv, 1);
  char null[4096], other[4096];
  snprintf(null, sizeof null, "%s/null", dir);
  snprintf(other, sizeof other, "%s/other", dir);
  if (access(null, F_OK)) inconclusive("%s: %s", null, strerror(errno));
  if (chmod(null, 0600) == 0) succeeded("changed the mode of %s", null);
  int error = errno;
  if (chown(null, 1000, 1000) == 0) succeeded("changed the owner of %s", null);
  if (rename(null, other) == 0) succeeded("moved %s", null);
  if (symlink("/tmp/x", other) == 0) succeeded("added a link to %s", dir);
  if (open(other, O_CREAT | O_WRONLY, 0600) >= 0) succeeded("added a file to %s", dir);
  if (unlink(null) == 0) succeeded("removed %s", null);
  struct timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
  if (utimensat(AT_FDCWD, null, times, 0) == 0 && chmod(dir, 0777) == 0) {
    succeeded("changed the mode of %s", dir);
  }
  blocked(error);
}
