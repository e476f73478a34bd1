// Reads the memory of a process of the host: process_vm_readv and /proc/PID/mem.
// argv: PID ADDRESS SECRET
#include <sys/uio.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  int pid = atoi(need(argc, argv, 1));
  uintptr_t address = strtoull(need(argc, argv, 2), NULL, 0);
  const char* secret = need(argc, argv, 3);
  size_t size = strlen(secret);
  char got[256] = "";
  struct iovec here = {got, size}, there = {(void*)address, size};
  ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);
  if (n == (ssize_t)size && !memcmp(got, secret, size))
    succeeded("process_vm_readv read the secret");
  int error = n < 0 ? errno : ESRCH;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/mem", pid);
  int fd = open(path, O_RDONLY);
  if (fd >= 0 && pread(fd, got, size, (off_t)address) == (ssize_t)size &&
      !memcmp(got, secret, size)) {
    succeeded("/proc/PID/mem read the secret");
  }
  blocked(error);
}
