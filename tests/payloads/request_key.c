// Makes the kernel start /sbin/request-key on the host for a key that does not exist.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  // ENOKEY: the kernel searched; it would have called out had we passed call-out data.
  verdict_reached(syscall(SYS_request_key, "user", "atoll-no-such-key", NULL, 0), ENOKEY,
                  "the kernel searched the keyrings");
}
