// Takes and touches memory without end. argv: CAP_MIB
#define PAYLOAD_KILLED_IS_BLOCKED
#include <sys/mman.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  long cap = atol(need(argc, argv, 1));
  printf("HOLDING\n");
  fflush(stdout);
  for (long mib = 0; mib < cap; mib += 8) {
    char* p = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) blocked_because("ENOMEM stopped at %ld MiB", mib);
    memset(p, 0x5a, 8 << 20);
  }
  succeeded("touched %ld MiB", cap);
}
