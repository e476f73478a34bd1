// Loaded before CRIU's other libraries, into CRIU only.
//
// The user namespace of a sandbox belongs to the sandbox's first id and not to root, so that what the
// kernel counts per user is counted per sandbox. Two things of CRIU need that owner:
// - reading limits of a process inside, on hosts whose root lacks CAP_SYS_RESOURCE: the owner has all
//   rights over the namespace;
// - making the namespace anew: it belongs to whoever makes it.
// For these calls the effective user becomes the one named in ATOLL_OWNER. Capabilities and the
// user of file accesses stay as they are.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

// From the C library that CRIU has; declared here so that this file needs no version of it.
extern void *dlsym(void *handle, const char *name);
#define NEXT ((void *)-1L)  // RTLD_NEXT

typedef long (*call_fn)(long, ...);
typedef int (*clone_fn)(int (*)(void *), void *, int, void *, ...);

static call_fn next_call;
static clone_fn next_clone;
static long owner;  // read at once: CRIU writes its title over the environment
static int borrowed;

__attribute__((constructor)) static void prepare(void) {
  next_call = (call_fn)dlsym(NEXT, "syscall");
  next_clone = (clone_fn)dlsym(NEXT, "clone");
  const char *text = getenv("ATOLL_OWNER");
  owner = text != NULL ? strtol(text, NULL, 10) : 0;
  if (next_call == NULL || next_clone == NULL || owner < 0) abort();
}

static int become(long user) {
  const long bits = next_call(SYS_prctl, PR_GET_SECUREBITS, 0, 0, 0, 0);
  if (bits < 0 || next_call(SYS_prctl, PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP, 0, 0, 0) != 0) return -1;
  const long done = next_call(SYS_setresuid, -1L, user, -1L);
  next_call(SYS_setfsuid, 0L);
  if (next_call(SYS_prctl, PR_SET_SECUREBITS, bits, 0, 0, 0) != 0) abort();
  return done == 0 ? 0 : -1;
}

static int borrow(void) {
  if (owner == 0) return 0;
  if (become(owner) != 0) return -1;
  borrowed = 1;
  return 0;
}

// A process that cannot return to its own user must not go on.
static void give_back(void) {
  if (!borrowed) return;
  const int saved = errno;
  borrowed = 0;
  if (become(0) != 0) abort();
  errno = saved;
}

static long limits(long pid, long resource, const void *new_limit, void *old_limit) {
  const long result = next_call(SYS_prlimit64, pid, resource, new_limit, old_limit);
  if (result == 0 || errno != EPERM || new_limit != NULL || owner == 0) return result;
  if (borrow() != 0) return result;
  const long second = next_call(SYS_prlimit64, pid, resource, new_limit, old_limit);
  give_back();
  return second;
}

int prlimit64(__pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *new_limit,
              struct rlimit64 *old_limit) {
  return (int)limits(pid, resource, new_limit, old_limit);
}

// The child keeps the borrowed user, which is root in the new namespace.
int clone(int (*run)(void *), void *stack, int flags, void *argument, ...) {
  va_list rest;
  va_start(rest, argument);
  void *parent = va_arg(rest, void *);
  void *tls = va_arg(rest, void *);
  void *child = va_arg(rest, void *);
  va_end(rest);
  if ((flags & CLONE_NEWUSER) == 0) return next_clone(run, stack, flags, argument, parent, tls, child);
  if (borrow() != 0) return -1;
  const int pid = next_clone(run, stack, flags, argument, parent, tls, child);
  give_back();
  return pid;
}

long syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_prlimit64) return limits(a[0], a[1], (const void *)a[2], (void *)a[3]);
  if (number != SYS_clone3 || (((const struct clone_args *)a[0])->flags & CLONE_NEWUSER) == 0)
    return next_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (borrow() != 0) return -1;
  const long pid = next_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (pid != 0) give_back();
  return pid;
}
