// Asks for direct access to I/O ports.
#include <sys/io.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  if (iopl(3) == 0) succeeded("iopl(3)");
  int error = errno;
  if (ioperm(0x80, 1, 1) == 0) succeeded("ioperm");
  blocked(error);
}
