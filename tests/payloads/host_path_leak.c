// Searches what /proc tells about PID 1, about itself and about the mounts for paths of the host.
// argv: FRAGMENT...
#include "payload.h"

static void attack(int argc, char** argv) {
  need(argc, argv, 1);
  static const char* const files[] = {"/proc/1/mountinfo",
                                      "/proc/1/environ",
                                      "/proc/1/cmdline",
                                      "/proc/1/maps",
                                      "/proc/1/cgroup",
                                      "/proc/1/mountstats",
                                      "/proc/1/comm",
                                      "/proc/self/mountinfo",
                                      "/proc/self/mounts",
                                      "/proc/self/environ",
                                      "/proc/self/cgroup",
                                      "/proc/self/mountstats",
                                      "/proc/cmdline",
                                      "/proc/swaps",
                                      "/proc/locks",
                                      "/proc/net/unix",
                                      "/proc/sys/kernel/core_pattern"};
  int seen = 0;
  for (size_t i = 0; i < sizeof files / sizeof *files; ++i) {
    for (int k = 1; k < argc; ++k) {
      int r = path_holds(files[i], argv[k]);
      if (r >= 0) ++seen;
      if (r == 1) succeeded("%s shows %s", files[i], argv[k]);
    }
  }
  static const char* const links[] = {"/proc/1/exe",    "/proc/1/cwd",  "/proc/1/root",
                                      "/proc/self/exe", "/proc/1/fd/0", "/proc/1/fd/1",
                                      "/proc/1/fd/2"};
  for (size_t i = 0; i < sizeof links / sizeof *links; ++i) {
    char target[4096];
    ssize_t n = readlink(links[i], target, sizeof target - 1);
    if (n < 0) continue;
    target[n] = 0;
    for (int k = 1; k < argc; ++k) {
      if (strstr(target, argv[k])) succeeded("%s -> %s", links[i], target);
    }
  }
  if (seen < argc) inconclusive("nothing of /proc could be read");
  blocked_because("NONE of %d files names a path of the host", seen / (argc - 1));
}
