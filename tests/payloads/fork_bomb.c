// Forks without end: every child forks too, and goes on trying when it fails. Stops by itself at
// CAP living processes or after SECONDS. argv: CAP SECONDS
#define PAYLOAD_KILLED_IS_BLOCKED
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "payload.h"

static struct {
  atomic_int born, buried, error, stop;
}* shared;

static int alive(void) { return atomic_load(&shared->born) - atomic_load(&shared->buried); }

static void bomb(int cap, unsigned seconds) {
  alarm(seconds + 2);  // in case the first process is killed
  while (!atomic_load(&shared->stop)) {
    if (alive() >= cap) {
      usleep(10000);
      continue;
    }
    pid_t child = fork();
    if (child < 0) {
      atomic_store(&shared->error, errno);
      sched_yield();
    } else if (child == 0) {
      alarm(seconds + 2);
      atomic_fetch_add(&shared->born, 1);
    }
  }
  _exit(0);
}

static void attack(int argc, char** argv) {
  int cap = atoi(need(argc, argv, 1));
  unsigned seconds = (unsigned)atoi(need(argc, argv, 2));
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) inconclusive("mmap: %s", strerror(errno));
  // Orphans come to this process, which buries them: the living can be counted. A dead child of a
  // living parent counts as alive, as it does for the kernel's limit.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  printf("HOLDING\n");
  fflush(stdout);
  if (fork() == 0) bomb(cap, seconds);
  int peak = 0;
  for (unsigned i = 0; i < seconds * 50 && peak < cap; ++i) {
    while (waitpid(-1, NULL, WNOHANG) > 0) atomic_fetch_add(&shared->buried, 1);
    if (alive() > peak) peak = alive();
    usleep(20000);
  }
  atomic_store(&shared->stop, 1);
  usleep(500000);
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
  int error = atomic_load(&shared->error);
  if (peak >= cap) succeeded("%d processes", peak);
  if (error == EAGAIN || error == ENOMEM) blocked_because("EAGAIN stopped at %d processes", peak);
  inconclusive("%d processes after %u seconds, last error %s", peak, seconds, strerror(error));
}
