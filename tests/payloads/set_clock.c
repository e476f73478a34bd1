// Sets the machine's clock, to the time that it shows: clock_settime, settimeofday, adjtimex.
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  struct timex tick = {0};
  adjtimex(&tick);
  struct timex same = {.modes = ADJ_TICK, .tick = tick.tick};
  if (tick.tick && adjtimex(&same) >= 0) succeeded("adjusted the clock");
  int error = errno;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (clock_settime(CLOCK_REALTIME, &now) == 0) succeeded("set the clock");
  blocked(is_refusal(errno) ? errno : error);
}
