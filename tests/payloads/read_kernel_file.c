// Reads a file of /proc or /sys that tells about the host's kernel. argv: PATH [addresses]
// With `addresses`, only numbers other than zero count: kernels blank them for the unprivileged.
#include <ctype.h>

#include "payload.h"

static int has_address(const char* text) {
  for (; *text; ++text) {
    if (!isxdigit((unsigned char)*text)) continue;
    int digits = 0, other = 0;
    for (; isxdigit((unsigned char)*text); ++text, ++digits) {
      if (*text != '0') other = 1;
    }
    if (digits >= 8 && other) return 1;
    if (!*text) break;
  }
  return 0;
}

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) blocked(errno);
  static char text[65536];
  ssize_t n = read(fd, text, sizeof text - 8);  // some want multiples of 8
  if (n < 0) blocked(errno);
  if (n == 0) blocked_because("EMPTY %s shows nothing", path);
  text[n] = 0;
  if (argc > 2 && !has_address(text)) blocked_because("ZEROED %s shows no address", path);
  succeeded("read %s", path);
}
