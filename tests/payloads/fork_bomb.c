// Forks without end: every child forks too, and goes on trying when it fails. Stops by itself at
// CAP processes or after SECONDS. argv: CAP SECONDS
#define PAYLOAD_KILLED_IS_BLOCKED
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "payload.h"

static struct {
  atomic_int alive, peak, error, stop;
}* shared;

static void bomb(int cap) {
  while (!shared->stop) {
    if (atomic_load(&shared->alive) >= cap) {
      usleep(10000);
      continue;
    }
    pid_t child = fork();
    if (child < 0) {
      atomic_store(&shared->error, errno);
      sched_yield();
    } else if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      int n = atomic_fetch_add(&shared->alive, 1) + 1;
      if (n > atomic_load(&shared->peak)) atomic_store(&shared->peak, n);
    }
  }
  _exit(0);
}

static void attack(int argc, char** argv) {
  int cap = atoi(need(argc, argv, 1)), seconds = atoi(need(argc, argv, 2));
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) inconclusive("mmap: %s", strerror(errno));
  printf("HOLDING\n");
  fflush(stdout);
  pid_t first = fork();
  if (first == 0) bomb(cap);
  for (int i = 0; i < seconds * 20; ++i) {
    if (atomic_load(&shared->peak) >= cap) break;
    usleep(50000);
  }
  atomic_store(&shared->stop, 1);
  usleep(300000);
  int peak = atomic_load(&shared->peak), error = atomic_load(&shared->error);
  if (peak >= cap) succeeded("%d processes", peak);
  if (error == EAGAIN || error == ENOMEM) blocked_because("EAGAIN stopped at %d processes", peak);
  inconclusive("%d processes after %d seconds, last error %s", peak, seconds, strerror(error));
}
