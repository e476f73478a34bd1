// Restarts the machine. The magic numbers are wrong: EINVAL comes after the permission check.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  verdict_reached(syscall(SYS_reboot, 0, 0, 0, NULL), EINVAL, "reboot would be obeyed");
}
