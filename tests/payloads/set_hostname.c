// Renames the machine; whoever runs this looks whether the host was meant. argv: NAME
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* name = need(argc, argv, 1);
  if (sethostname(name, strlen(name)) == 0) succeeded("set the host name to %s", name);
  int error = errno;
  int fd = open("/proc/sys/kernel/hostname", O_WRONLY);
  if (fd >= 0 && write(fd, name, strlen(name)) > 0) succeeded("wrote the host name %s", name);
  blocked(error);
}
