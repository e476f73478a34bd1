// Loads another kernel. The flags are invalid: EINVAL comes after the permission checks.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  long r = syscall(SYS_kexec_load, 0, 0, NULL, 0x7000);
  if (r == 0 || errno == EINVAL) succeeded("kexec_load would take a kernel");
  int error = errno;
  r = syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0x7000);
  if (r == 0 || errno == EINVAL) succeeded("kexec_file_load would take a kernel");
  blocked(error);
}
