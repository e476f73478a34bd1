// Reaches the kernel's keyrings, which no namespace separates by user: joins and lists a session
// keyring.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  if (syscall(SYS_keyctl, 0 /* get keyring id */, -5 /* user session */, 1) >= 0) {
    succeeded("got a keyring");
  }
  int error = errno;
  if (syscall(SYS_keyctl, 1 /* join session */, NULL) >= 0) succeeded("joined a session keyring");
  blocked(error);
}
