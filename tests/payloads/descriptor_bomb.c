// Opens descriptors without end, in as many processes as it takes; holds them for SECONDS.
// argv: CAP SECONDS null|memfd: of the cheapest kind, or of a kind that costs a kibibyte
#define PAYLOAD_KILLED_IS_BLOCKED
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "payload.h"

static struct {
  atomic_long count;
  atomic_int error, done;
}* shared;

// Any worker that died gave its descriptors back, so the count is no longer what is held.
static void stop_if_killed(void) {
  if (waitpid(-1, NULL, WNOHANG) > 0) {
    blocked_because("SIGKILL stopped at %ld descriptors", (long)shared->count);
  }
}

static void attack(int argc, char** argv) {
  long cap = atol(need(argc, argv, 1));
  int seconds = atoi(need(argc, argv, 2));
  int cheap = !strcmp(need(argc, argv, 3), "null");
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  printf("HOLDING\n");
  fflush(stdout);
  for (int workers = 0; workers < 256 && shared->count < cap; ++workers) {
    pid_t child = fork();
    if (child < 0) {
      atomic_store(&shared->error, errno);
      break;
    }
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      int before = shared->done;
      while (shared->count < cap) {
        if ((cheap ? open("/dev/null", O_RDONLY) : memfd_create("bomb", 0)) < 0) {
          atomic_store(&shared->error, errno);
          break;
        }
        atomic_fetch_add(&shared->count, 1);
      }
      atomic_store(&shared->done, before + 1);
      for (;;) pause();
    }
    for (int i = 0; i < 200 && shared->done <= workers; ++i) {
      usleep(50000);
      stop_if_killed();
    }
    if (shared->error == ENFILE || shared->error == ENOMEM) break;
  }
  sleep((unsigned)seconds);
  stop_if_killed();
  if (shared->count >= cap) succeeded("%ld descriptors", (long)shared->count);
  blocked_because("%s stopped at %ld descriptors", strerrorname_np(shared->error),
                  (long)shared->count);
}
