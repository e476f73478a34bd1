// Gains capabilities beyond the documented ones by executing a binary with file capabilities: all
// of them, permitted and effective. argv: ALLOWED_CAPABILITIES (hex mask)
#include <linux/capability.h>
#include <sys/xattr.h>

#include "regain.h"

static const char* with_capabilities(uint32_t flags) {
  char* copy = strdup(copy_of_self());
  chmod(copy, 0755);
  struct vfs_cap_data all = {.magic_etc = VFS_CAP_REVISION_2 | flags};
  all.data[0].permitted = 0xffffffff;
  all.data[1].permitted = 0x1ff;
  if (setxattr(copy, "security.capability", &all, sizeof all, 0)) blocked(errno);
  return copy;
}

static void attack(int argc, char** argv) {
  uint64_t allowed = strtoull(need(argc, argv, 1), NULL, 16);
  if (argc > 2) report_capabilities(allowed);
  if (geteuid() != 0) inconclusive("needs root to prepare");
  // With the effective bit, an exec fails that cannot give all; without it, it gives what the
  // bounding set has.
  const char* effective = with_capabilities(VFS_CAP_FLAGS_EFFECTIVE);
  const char* permitted = with_capabilities(0);
  become_nobody();
  execl(effective, effective, argv[1], "report", NULL);
  execl(permitted, permitted, argv[1], "report", NULL);
  blocked(errno);
}
