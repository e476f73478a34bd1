// Mounts a second procfs and looks in it for the files that are masked in the first.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  const char* at = scratch_dir();
  if (mount("proc", at, "proc", 0, NULL)) blocked(errno);
  char path[512];
  snprintf(path, sizeof path, "%s/sysrq-trigger", at);
  int fd = open(path, O_WRONLY);
  int error = errno;
  umount2(at, MNT_DETACH);
  if (fd >= 0) succeeded("a second /proc has no masks");
  succeeded("mounted a second /proc (sysrq-trigger: %s)", strerror(error));
}
