// Lifts the limits of its own cgroup through whatever cgroup tree is mounted: opens memory, pids
// and cpu limits and cgroup.procs for writing.
#include <ftw.h>

#include "payload.h"

static int seen;

static int visit(const char* path, const struct stat* st, int type, struct FTW* where) {
  (void)st;
  (void)where;
  static const char* const names[] = {"memory.max",    "memory.limit_in_bytes", "pids.max",
                                      "cpu.max",       "cpu.cfs_quota_us",      "cgroup.procs",
                                      "cgroup.freeze", "freezer.state",         "devices.allow",
                                      "tasks",         "release_agent"};
  if (type != FTW_F) return 0;
  const char* name = strrchr(path, '/') + 1;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (strcmp(name, names[i])) continue;
    ++seen;
    if (open(path, O_WRONLY | O_NONBLOCK) >= 0) succeeded("%s opens for writing", path);
  }
  return 0;
}

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  FILE* mounts = fopen("/proc/self/mounts", "r");
  if (!mounts) inconclusive("mounts: %s", strerror(errno));
  for (char line[8192]; fgets(line, sizeof line, mounts);) {
    char at[4096], type[64];
    if (sscanf(line, "%*s %4095s %63s", at, type) != 2 || strncmp(type, "cgroup", 6)) continue;
    nftw(at, visit, 32, FTW_PHYS);
  }
  nftw("/sys/fs/cgroup", visit, 32, FTW_PHYS);
  if (!seen) blocked_because("ENOENT no cgroup file is visible");
  blocked_because("EACCES all %d files refuse", seen);
}
