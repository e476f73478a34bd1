// Gets a writable cgroup hierarchy: mounts version 1 and 2, and opens release_agent or cgroup.procs
// of the top for writing (the class of CVE-2022-0492).
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  static const struct {
    const char *type, *data, *file;
  } ways[] = {
      {"cgroup", "memory", "release_agent"},      {"cgroup", "rdma", "release_agent"},
      {"cgroup", "freezer", "release_agent"},     {"cgroup", "none,name=systemd", "release_agent"},
      {"cgroup", "pids", "release_agent"},        {"cgroup2", NULL, "cgroup.procs"},
      {"cgroup2", NULL, "cgroup.subtree_control"}};
  const char* at = scratch_dir();
  int error = 0;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; ++i) {
    if (mount("none", at, ways[i].type, 0, ways[i].data)) {
      // EBUSY and EINVAL: the hierarchy is in use with other options; another way may fit.
      if (!error || is_refusal(errno)) error = errno;
      continue;
    }
    char path[512];
    snprintf(path, sizeof path, "%s/%s", at, ways[i].file);
    int fd = open(path, O_WRONLY);
    umount2(at, MNT_DETACH);
    if (fd >= 0) succeeded("mounted %s and opened %s for writing", ways[i].type, ways[i].file);
    succeeded("mounted %s", ways[i].type);
  }
  blocked(error);
}
