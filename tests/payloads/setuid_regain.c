// Gains capabilities beyond the documented ones by executing a binary that is set-uid root.
// argv: ALLOWED_CAPABILITIES (hex mask)
#include "regain.h"

static void attack(int argc, char** argv) {
  uint64_t allowed = strtoull(need(argc, argv, 1), NULL, 16);
  if (argc > 2) report_capabilities(allowed);
  const char* copy = copy_of_self();
  if (chown(copy, 0, 0)) inconclusive("needs root to prepare: %s", strerror(errno));
  if (chmod(copy, 04755)) blocked(errno);
  become_nobody();
  execl(copy, copy, argv[1], "report", NULL);
  blocked(errno);
}
