// Mounts the host's disk read-only: by its node, and by a node made on the spot. argv: PATH MAJOR
// MINOR TYPE
#include <sys/sysmacros.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  dev_t device = makedev(atoi(need(argc, argv, 2)), atoi(need(argc, argv, 3)));
  const char* type = need(argc, argv, 4);
  const char* at = scratch_dir();
  char node[128];
  snprintf(node, sizeof node, "%s-node", at);
  if (mknod(node, S_IFBLK | 0600, device) == 0) path = node;
  long r = mount(path, at, type, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  int error = errno;
  if (r == 0) umount2(at, MNT_DETACH);
  unlink(node);
  errno = error;
  verdict(r, "mounted the host's disk");
}
