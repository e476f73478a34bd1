// Turns on process accounting for the whole machine, into a file that does not exist: ENOENT comes
// after the permission check.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  if (acct("/nonexistent/accounting") == 0 || errno == ENOENT) succeeded("acct would be obeyed");
  blocked(errno);
}
