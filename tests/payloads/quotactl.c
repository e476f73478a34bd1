// Reaches the host's disk quotas.
#include <sys/quota.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  verdict(syscall(SYS_quotactl, QCMD(Q_SYNC, USRQUOTA), NULL, 0, NULL), "synchronised the quotas");
}
