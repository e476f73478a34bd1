// Raises its own capabilities beyond the documented ones with capset and ambient sets.
// argv: ALLOWED_CAPABILITIES (hex mask)
#include <linux/capability.h>
#include <sys/prctl.h>

#include "regain.h"

static void attack(int argc, char** argv) {
  uint64_t allowed = strtoull(need(argc, argv, 1), NULL, 16);
  uint64_t have = permitted_capabilities();
  if (have & ~allowed) succeeded("has capabilities %llx", (unsigned long long)have);
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  memset(data, 0xff, sizeof data);
  data[1].effective = data[1].permitted = data[1].inheritable = 0x1ff;
  syscall(SYS_capset, &head, data);
  for (int cap = 0; cap < 41; ++cap) prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0);
  report_capabilities(allowed);
}
