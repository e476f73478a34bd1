// Climbs out of the root with "..": from the working directory, from descriptors of "/" and of "."
// and through /proc/self/cwd and /proc/self/root. argv: PATH SECRET
#include "payload.h"

static char up[4096];

static void try_at(int dir, const char* start, const char* secret) {
  char path[8192];
  snprintf(path, sizeof path, "%s%s", start, up);
  int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (fd_holds(fd, secret) == 1) succeeded("read the secret through %.100s", path);
  close(fd);
}

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  const char* secret = need(argc, argv, 2);
  for (int i = 0; i < 64; ++i) strcat(up, "../");
  strcat(up, path + 1);

  try_at(AT_FDCWD, "", secret);
  try_at(open(".", O_PATH | O_DIRECTORY), "", secret);
  try_at(open("/", O_RDONLY | O_DIRECTORY), "", secret);
  try_at(open("/", O_PATH | O_DIRECTORY), "", secret);
  try_at(AT_FDCWD, "/proc/self/cwd/", secret);
  try_at(AT_FDCWD, "/proc/self/root/", secret);
  try_at(AT_FDCWD, "/dev/", secret);
  try_at(AT_FDCWD, "/dev/pts/", secret);
  try_at(AT_FDCWD, "/dev/shm/", secret);
  try_at(AT_FDCWD, "/run/atoll/", secret);
  blocked_because("ENOENT \"..\" stays inside the root");
}
