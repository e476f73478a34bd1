// Types into a terminal as if a person did: TIOCSTI, also with high bits that a 32-bit comparison
// of the request ignores, and TIOCLINUX.
#include <pty.h>
#include <sys/ioctl.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  int master, slave;
  if (openpty(&master, &slave, NULL, NULL, NULL)) inconclusive("openpty: %s", strerror(errno));
  setsid();
  if (ioctl(slave, TIOCSCTTY, 0)) inconclusive("TIOCSCTTY: %s", strerror(errno));
  char c = '\n';
  if (syscall(SYS_ioctl, slave, (unsigned long)TIOCSTI, &c) == 0)
    succeeded("typed into the terminal");
  int error = errno;
  if (syscall(SYS_ioctl, slave, (unsigned long)TIOCSTI | 0x100000000ul, &c) == 0) {
    succeeded("typed into the terminal with high bits set");
  }
  char paste = 3;  // paste selection
  if (syscall(SYS_ioctl, slave, (unsigned long)TIOCLINUX, &paste) == 0) succeeded("TIOCLINUX");
  blocked(error == EIO ? EPERM : error);
}
