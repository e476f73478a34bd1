// The zygote: a preloaded Python outside of all sandboxes that forks itself into one when the
// warden says so.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

struct zygote_state zygote;

static int refuse(const char* what) {
  fprintf(stderr, "zygote: %s: %s\n", what, strerror(errno));
  return -1;
}

static int read_exactly(int fd, void* into, size_t size) {
  char* at = into;
  while (size > 0) {
    const ssize_t n = read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = ENODATA;
      return -1;
    }
    at += n;
    size -= (size_t)n;
  }
  return 0;
}

static int read_setup(int fd) {
  struct atoll_zygote_setup* setup = &zygote.setup;
  if (read_exactly(fd, setup, sizeof(*setup)) < 0) return -1;
  errno = EPROTO;
  if (setup->magic != ATOLL_ZYGOTE_MAGIC || setup->version != ATOLL_ZYGOTE_VERSION) return -1;
  if (setup->allow_count == 0 || setup->allow_count > ATOLL_ZYGOTE_MAX_FILTER) return -1;
  if (setup->rules_count == 0 || setup->rules_count > ATOLL_ZYGOTE_MAX_FILTER) return -1;
  const size_t one = sizeof(struct sock_filter);
  if (read_exactly(fd, zygote.filters[0], one * setup->allow_count) < 0) return -1;
  return read_exactly(fd, zygote.filters[1], one * setup->rules_count);
}

// The names of the template: a zygote asks them at its start, never inside a sandbox.
static int find_user(void) {
  errno = ENOENT;
  const struct passwd* entry = getpwnam("user");
  if (entry == NULL || entry->pw_uid == 0 || entry->pw_gid == 0) return -1;
  zygote.uid = entry->pw_uid;
  zygote.gid = entry->pw_gid;
  zygote.group_count = ATOLL_MAX_GROUPS;
  errno = E2BIG;
  return getgrouplist("user", zygote.gid, zygote.groups, &zygote.group_count) < 0 ? -1 : 0;
}

ATOLL_EXPORT int atoll_zygote_open(int warden, int setup) {
  if (prctl(PR_SET_DUMPABLE, 0) != 0) return refuse("dumpable");
  if (read_setup(setup) < 0) return refuse("set-up");
  close(setup);
  if (find_user() < 0) return refuse("user");
  if (sched_getaffinity(0, sizeof(zygote.affinity), &zygote.affinity) != 0)
    return refuse("affinity");
  zygote.own_pid_namespace = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
  if (zygote.own_pid_namespace < 0) return refuse("pid namespace");
  zygote.namespaces =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  if (access("/proc/self/ns/time", F_OK) == 0) zygote.namespaces |= CLONE_NEWTIME;
  if (fcntl(warden, F_SETFD, FD_CLOEXEC) != 0) return refuse("the warden's socket");
  return 0;
}

ATOLL_EXPORT int atoll_zygote_ready(int warden) {
  const int threads = thread_count();
  if (threads != 1) {
    fprintf(stderr, "zygote: %d threads instead of one\n", threads);
    return -1;
  }
  const struct atoll_zygote_ready message = {ATOLL_ZYGOTE_MAGIC, ATOLL_ZYGOTE_VERSION};
  if (send(warden, &message, sizeof(message), MSG_NOSIGNAL) != (ssize_t)sizeof(message))
    return refuse("ready");
  return 0;
}

static void close_all(const int* fds, int count) {
  for (int i = 0; i < count; ++i) close(fds[i]);
}

// Of what failed before there was a new process.
static void tell(int fd, enum atoll_zygote_step step, int error, uint64_t asked_at) {
  const struct atoll_zygote_report report = {.magic = ATOLL_ZYGOTE_MAGIC,
                                             .step = step,
                                             .error = error,
                                             .fork_micros = (uint32_t)(micros_now() - asked_at)};
  if (write(fd, &report, sizeof(report)) < 0) {
    // The warden no longer waits.
  }
}

ATOLL_EXPORT int atoll_zygote_serve_once(int warden) {
  struct atoll_zygote_request request;
  int fds[2 + ATOLL_ZYGOTE_MAX_CGROUPS];
  int count = 2 + ATOLL_ZYGOTE_MAX_CGROUPS;
  const long n = receive_with_fds(warden, &request, sizeof(request), fds, &count);
  if (n == 0) return -1;
  if (n != (long)sizeof(request) || request.magic != ATOLL_ZYGOTE_MAGIC ||
      request.cgroup_count > ATOLL_ZYGOTE_MAX_CGROUPS ||
      (unsigned)count != 2 + request.cgroup_count) {
    close_all(fds, count);
    return -1;
  }
  struct entry_fds entry = {
      .report = fds[0], .pidfd = fds[1], .cgroup_count = request.cgroup_count};
  memcpy(entry.cgroups, fds + 2, sizeof(int) * request.cgroup_count);

  const uint64_t asked_at = micros_now();
  int spoilt = 0;
  python_before_fork();
  // Only for processes that are made from now on. Whoever is not in the sandbox's pid namespace is
  // not made.
  if (zygote.setup.fail_step == atoll_step_pid_namespace || setns(entry.pidfd, CLONE_NEWPID) != 0) {
    tell(entry.report, atoll_step_pid_namespace, errno != 0 ? errno : EIO, asked_at);
  } else {
    const pid_t made = zygote.setup.fail_step == atoll_step_fork
                           ? -EIO
                           : fork_adopted(zygote.setup.fail_step == atoll_step_between);
    if (made == 0) {
      enter_sandbox(&entry, asked_at);
      python_after_fork_child();
      return 1;
    }
    // The next fork would be made in a sandbox that did not ask for it.
    if (setns(zygote.own_pid_namespace, CLONE_NEWPID) != 0) abort();
    spoilt = made == ATOLL_FORK_SPOILT;
    if (made < 0) tell(entry.report, spoilt ? atoll_step_between : atoll_step_fork, -made, asked_at);
  }
  python_after_fork_parent();
  close_all(fds, count);
  return spoilt ? -1 : 0;
}
