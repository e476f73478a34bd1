// Loads a kernel module. The image is garbage: ENOEXEC means that the loader looked at it.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  static char image[4096];
  long r = syscall(SYS_init_module, image, sizeof image, "");
  if (r == 0 || errno == ENOEXEC) succeeded("the module loader read our image");
  int error = errno;
  int fd = open("/proc/self/exe", O_RDONLY);
  r = syscall(SYS_finit_module, fd, "", 0);
  if (r == 0 || errno == ENOEXEC) succeeded("the module loader read our file");
  blocked(error);
}
