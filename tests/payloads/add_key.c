// Stores a key in the kernel (memory outside the sandbox's limits).
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  verdict(syscall(SYS_add_key, "user", "atoll-payload", "x", 1, -2 /* process keyring */),
          "stored a key");
}
