// Mounts a block device of the host read-only, by its node or by one made on the spot.
// argv: PATH MAJOR MINOR TYPE FILE SECRET
#include <sys/sysmacros.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  dev_t device = makedev(atoi(need(argc, argv, 2)), atoi(need(argc, argv, 3)));
  const char* type = need(argc, argv, 4);
  const char* at = scratch_dir();
  char node[512], file[1024];
  snprintf(node, sizeof node, "%s-node", at);
  if (mknod(node, S_IFBLK | 0600, device) == 0) path = node;
  long r = mount(path, at, type, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  int error = errno;
  unlink(node);
  if (r < 0) blocked(error);
  snprintf(file, sizeof file, "%s/%s", at, need(argc, argv, 5));
  int found = path_holds(file, need(argc, argv, 6));
  umount2(at, MNT_DETACH);
  if (found != 1) inconclusive("mounted something else");
  succeeded("mounted the device and read a file");
}
