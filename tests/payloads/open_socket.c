// Opens a socket of an address family that leaves the sandbox's network or widens the kernel's
// attack surface. argv: DOMAIN TYPE PROTOCOL (numbers)
#include "payload.h"

static void attack(int argc, char** argv) {
  int domain = atoi(need(argc, argv, 1)), type = atoi(need(argc, argv, 2)),
      protocol = atoi(need(argc, argv, 3));
  verdict(socket(domain, type | SOCK_CLOEXEC, protocol), "got the socket");
}
