// Makes a device node in every place that takes one and opens it, for reading only.
// argv: b|c MAJOR MINOR [SECRET]
#include <sys/sysmacros.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  mode_t type = *need(argc, argv, 1) == 'b' ? S_IFBLK : S_IFCHR;
  dev_t device = makedev(atoi(need(argc, argv, 2)), atoi(need(argc, argv, 3)));
  const char* const places[] = {scratch(),  "/tmp",       "/dev/shm", "/home/user", "/run", "/root",
                                "/var/tmp", "/run/atoll", "/dev",     "/mnt",       "/"};
  int error = ENOENT;
  for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
    char path[512];
    snprintf(path, sizeof path, "%s/node-%d", places[i], getpid());
    if (mknod(path, type | 0600, device)) {
      if (errno != ENOENT) error = errno;
      continue;
    }
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) error = errno;
    unlink(path);
    if (fd < 0) continue;
    if (argc > 4 && fd_holds(fd, argv[4]) != 1) inconclusive("opened %s without the secret", path);
    succeeded("made %s and opened it", path);
  }
  blocked(error);
}
