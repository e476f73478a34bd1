// Mounts a new file system of a given type over an own directory. argv: TYPE [DATA]
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* type = need(argc, argv, 1);
  const char* at = scratch_dir();
  char data[2048] = "";
  if (!strcmp(type, "overlay")) {
    char lower[512], upper[512], work[512];
    const char* base = scratch();
    snprintf(lower, sizeof lower, "%s/lower-%d", base, getpid());
    snprintf(upper, sizeof upper, "%s/upper-%d", base, getpid());
    snprintf(work, sizeof work, "%s/work-%d", base, getpid());
    mkdir(lower, 0755);
    mkdir(upper, 0755);
    mkdir(work, 0755);
    snprintf(data, sizeof data, "lowerdir=%s,upperdir=%s,workdir=%s", lower, upper, work);
  } else if (argc > 2) {
    snprintf(data, sizeof data, "%s", argv[2]);
  }
  long r = mount("none", at, type, 0, data);
  int error = errno;
  if (r == 0) umount2(at, MNT_DETACH);
  errno = error;
  verdict(r, type);
}
