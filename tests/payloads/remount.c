// Makes a read-only mount writable: with mount(MS_REMOUNT) and with mount_setattr. argv: PATH
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  if (mount(NULL, path, NULL, MS_REMOUNT | MS_BIND, NULL) == 0) succeeded("remounted %s", path);
  int error = errno;
  if (mount(NULL, path, NULL, MS_REMOUNT, NULL) == 0) succeeded("reconfigured %s", path);
  struct {
    uint64_t set, clear, propagation, userns;
  } attributes = {0, 1 /* MOUNT_ATTR_RDONLY */, 0, 0};
  if (syscall(442 /* mount_setattr */, AT_FDCWD, path, 0, &attributes, sizeof attributes) == 0) {
    succeeded("mount_setattr changed %s", path);
  }
  blocked(error);
}
