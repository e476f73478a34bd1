// Calls the kernel through the 32-bit gate, whose numbers a 64-bit filter misreads.
#include "payload.h"

static void crashed(int number) {
  (void)number;
  // Without 32-bit emulation the gate does not exist.
  blocked_because("ENOSYS this kernel has no 32-bit gate");
}

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  signal(SIGSEGV, crashed);
  long r = 20;  // getpid
  __asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
  if (r == getpid()) succeeded("getpid through int 0x80");
  errno = r < 0 ? (int)-r : ENOSYS;
  blocked(errno);
}
