// What the payloads about regained capabilities share: a copy of the program, which an unprivileged
// child executes to see what it got.
#pragma once

#include <grp.h>
#include <limits.h>
#include <sys/sendfile.h>

#include "payload.h"

static inline uint64_t permitted_capabilities(void) {
  FILE* f = fopen("/proc/self/status", "r");
  if (!f) inconclusive("status: %s", strerror(errno));
  unsigned long long mask = 0;
  for (char line[256]; fgets(line, sizeof line, f);) sscanf(line, "CapPrm: %llx", &mask);
  fclose(f);
  return mask;
}

static inline _Noreturn void report_capabilities(uint64_t allowed) {
  uint64_t have = permitted_capabilities();
  if (have & ~allowed) succeeded("got capabilities %llx", (unsigned long long)have);
  blocked_because("BOUNDED got %llx and no more", (unsigned long long)have);
}

static inline const char* copy_of_self(void) {
  static char path[512];
  const char* dir = scratch_dir();
  chmod(dir, 0755);
  snprintf(path, sizeof path, "%s/copy", dir);
  int in = open("/proc/self/exe", O_RDONLY), out = open(path, O_CREAT | O_WRONLY, 0755);
  if (in < 0 || out < 0) inconclusive("cannot copy: %s", strerror(errno));
  while (sendfile(out, in, NULL, 1 << 20) > 0) {
  }
  close(in);
  close(out);
  return path;
}

static inline void become_nobody(void) {
  if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) {
    inconclusive("cannot become nobody: %s", strerror(errno));
  }
}
