// Gains capabilities beyond the documented ones by executing a binary with file capabilities: all
// of them, permitted and effective. argv: ALLOWED_CAPABILITIES (hex mask)
#include <linux/capability.h>
#include <sys/xattr.h>

#include "regain.h"

static void attack(int argc, char** argv) {
  uint64_t allowed = strtoull(need(argc, argv, 1), NULL, 16);
  if (argc > 2) report_capabilities(allowed);
  const char* copy = copy_of_self();
  if (geteuid() != 0) inconclusive("needs root to prepare");
  chmod(copy, 0755);
  struct vfs_cap_data all = {.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE};
  all.data[0].permitted = 0xffffffff;
  all.data[1].permitted = 0x1ff;
  if (setxattr(copy, "security.capability", &all, sizeof all, 0)) blocked(errno);
  exec_as_nobody(copy, argv[1]);
}
