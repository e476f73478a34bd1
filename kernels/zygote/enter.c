// The way of a forked Python from the host's root into a sandbox: what it takes along, what it
// gives up, in which order.
//
// Nobody inside can look at or stop this process before the last line: it is undumpable, and the
// ids it has are none of theirs. If a step fails it says which and ends. It cannot stay behind on
// the way either: an alarm ends it.
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/ioprio.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <linux/un.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum { kAgent = 3, kReport = 4, kPidfd = 5, kCgroups = 6, kAbove = 256, kAlarmSeconds = 10 };

static const char kAgentName[] = "\0atoll-nursery";
enum {
  kConnectTries = 2000,
  kConnectPause = 500 * 1000
};  // one second, half a millisecond at a time

static struct atoll_zygote_report report;
static uint64_t begun;

__attribute__((noreturn)) static void fail(enum atoll_zygote_step step, int error) {
  report.step = step;
  report.error = error != 0 ? error : EIO;
  report.enter_micros = (uint32_t)(micros_now() - begun);
  syscall(SYS_write, kReport, &report, sizeof(report));
  syscall(SYS_exit_group, 1);
  __builtin_unreachable();
}

// Before each step; tests make it fail here.
static void at(enum atoll_zygote_step step) {
  if (zygote.setup.fail_step == (uint32_t)step) fail(step, EIO);
}

#define MUST(step, call)                 \
  do {                                   \
    if ((call) < 0) fail((step), errno); \
  } while (0)

// 4 the report, 5 the pidfd, then the cgroups' files; everything else, the warden's socket first of
// all, is closed.
static void place(const struct entry_fds* fds) {
  const enum atoll_zygote_step step = atoll_step_descriptors;
  int moved[2 + ATOLL_ZYGOTE_MAX_CGROUPS];
  const unsigned count = 2 + fds->cgroup_count;
  for (unsigned i = 0; i < count; ++i) {
    const int from = i == 0 ? fds->report : i == 1 ? fds->pidfd : fds->cgroups[i - 2];
    moved[i] = (int)syscall(SYS_fcntl, from, F_DUPFD_CLOEXEC, kAbove);
    if (moved[i] < 0)
      syscall(SYS_exit_group, 1);  // there is no way to tell: the end of the pipe does
  }
  if (syscall(SYS_dup3, moved[0], kReport, O_CLOEXEC) < 0) syscall(SYS_exit_group, 1);
  at(step);
  MUST(step, syscall(SYS_close_range, 0U, (unsigned)kReport - 1, 0U));
  for (unsigned i = 1; i < count; ++i)
    MUST(step, syscall(SYS_dup3, moved[i], kReport + (int)i, O_CLOEXEC));
  MUST(step, syscall(SYS_close_range, (unsigned)kReport + count, ~0U, 0U));
}

static void enter_cgroups(unsigned count) {
  at(atoll_step_cgroup);
  for (unsigned i = 0; i < count; ++i) {
    MUST(atoll_step_cgroup, syscall(SYS_write, kCgroups + (int)i, "0", 1));
    MUST(atoll_step_cgroup, syscall(SYS_close, kCgroups + (int)i));
  }
}

// While /proc is still the zygote's own.
static void set_oom_score(void) {
  const enum atoll_zygote_step step = atoll_step_oom_score;
  at(step);
  char text[12];
  int at_digit = sizeof(text);
  int value = zygote.setup.oom_score_adj;
  const bool negative = value < 0;
  if (negative) value = -value;
  do {
    text[--at_digit] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0);
  if (negative) text[--at_digit] = '-';
  const long file = syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  MUST(step, file);
  MUST(step, syscall(SYS_write, file, text + at_digit, sizeof(text) - (unsigned)at_digit));
  MUST(step, syscall(SYS_close, file));
}

static void enter_namespaces(void) {
  at(atoll_step_namespaces);
  MUST(atoll_step_namespaces, syscall(SYS_setns, kPidfd, zygote.namespaces));
  report.entered = 1;
  MUST(atoll_step_namespaces, syscall(SYS_close, kPidfd));
}

static void new_session(void) {
  const enum atoll_zygote_step step = atoll_step_session;
  at(step);
  MUST(step, syscall(SYS_setsid));
  if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
    fail(step, errno);
  MUST(step, syscall(SYS_chdir, "/"));
  syscall(SYS_umask, 022);
  MUST(step, syscall(SYS_setpriority, PRIO_PROCESS, 0, 0));
  MUST(step, syscall(SYS_sched_setaffinity, 0, sizeof(zygote.affinity), &zygote.affinity));
  MUST(step, syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 4)));
  MUST(step, syscall(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0));
}

static void become_root_inside(void) {
  at(atoll_step_root);
  MUST(atoll_step_root, syscall(SYS_setgroups, 0, NULL));
  MUST(atoll_step_root, syscall(SYS_setresgid, 0, 0, 0));
  MUST(atoll_step_root, syscall(SYS_setresuid, 0, 0, 0));
}

// As the sandbox's root, by which the agent knows us. Waits for an agent that is about to listen (a
// sandbox answers for itself before its agent has come so far), and for nothing else: one that does
// not take us now has its queue full.
static void connect_agent(void) {
  const enum atoll_zygote_step step = atoll_step_connect;
  at(step);
  const long fd = syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  MUST(step, fd);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, kAgentName, sizeof(kAgentName) - 1);
  const unsigned size = offsetof(struct sockaddr_un, sun_path) + sizeof(kAgentName) - 1;
  long connected = syscall(SYS_connect, fd, &address, size);
  for (int tries = 0; connected < 0 && errno == ECONNREFUSED && tries < kConnectTries; ++tries) {
    const struct timespec pause = {0, kConnectPause};
    syscall(SYS_nanosleep, &pause, NULL);
    connected = syscall(SYS_connect, fd, &address, size);
  }
  MUST(step, connected);
  struct {
    int32_t pid;
    uint32_t uid;
    uint32_t gid;
  } peer = {0, ~0U, ~0U};
  unsigned peer_size = sizeof(peer);
  MUST(step, syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size));
  if (peer.uid != 0) fail(step, EACCES);
  MUST(step, syscall(SYS_fcntl, fd, F_SETFL, 0));
  MUST(step, syscall(SYS_dup3, fd, kAgent, O_CLOEXEC));
  MUST(step, syscall(SYS_close, fd));
}

static void limit_capabilities(void) {
  const enum atoll_zygote_step step = atoll_step_bounding_set;
  at(step);
  MUST(step, syscall(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
  // The kernel says with EINVAL where its capabilities end.
  for (unsigned capability = 0; capability < 64; ++capability) {
    const long known = syscall(SYS_prctl, PR_CAPBSET_READ, capability, 0, 0, 0);
    if (known < 0) break;
    if (known == 0 || (zygote.setup.keep_capabilities >> capability & 1) != 0) continue;
    MUST(step, syscall(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0));
  }
}

// The filters before the last change of ids: without no_new_privs (sudo must work) they need
// CAP_SYS_ADMIN, and what follows is allowed.
static void give_up_the_rest(void) {
  at(atoll_step_groups);
  MUST(atoll_step_groups, syscall(SYS_setgroups, zygote.group_count, zygote.groups));
  MUST(atoll_step_groups, syscall(SYS_setresgid, zygote.gid, zygote.gid, zygote.gid));
  at(atoll_step_filter);
  for (int i = 0; i < 2; ++i) {
    struct sock_fprog program = {
        .len = (unsigned short)(i == 0 ? zygote.setup.allow_count : zygote.setup.rules_count),
        .filter = zygote.filters[i]};
    MUST(atoll_step_filter, syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
  }
  at(atoll_step_user);
  MUST(atoll_step_user, syscall(SYS_setresuid, zygote.uid, zygote.uid, zygote.uid));
  at(atoll_step_capabilities);
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  MUST(atoll_step_capabilities, syscall(SYS_capset, &header, none));
}

static void check(void) {
  const enum atoll_zygote_step step = atoll_step_check;
  at(step);
  if (syscall(SYS_setresuid, 0, 0, 0) == 0 || syscall(SYS_setresgid, 0, 0, 0) == 0)
    fail(step, EPERM);
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct have[2];
  MUST(step, syscall(SYS_capget, &header, have));
  for (int i = 0; i < 2; ++i)
    if ((have[i].effective | have[i].permitted | have[i].inheritable) != 0) fail(step, EPERM);
  if (syscall(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) != SECCOMP_MODE_FILTER) fail(step, EPERM);
  if (syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0) == 1) fail(step, EPERM);
}

// The sandbox's own, opened as its user. A descriptor from outside could not be dumped later.
static void open_null(void) {
  const enum atoll_zygote_step step = atoll_step_null;
  at(step);
  const long null = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  MUST(step, null);
  for (int fd = 0; fd < 3; ++fd)
    if (fd != null) MUST(step, syscall(SYS_dup3, null, fd, 0));
  MUST(step, syscall(SYS_close_range, (unsigned)kReport + 1, ~0U, 0U));
}

void enter_sandbox(const struct entry_fds* fds, uint64_t asked_at) {
  begun = micros_now();
  report = (struct atoll_zygote_report){.magic = ATOLL_ZYGOTE_MAGIC};
  report.fork_micros = (uint32_t)(begun - asked_at);
  struct itimerval alarm = {{0, 0}, {kAlarmSeconds, 0}};
  syscall(SYS_setitimer, ITIMER_REAL, &alarm, NULL);
  place(fds);
  enter_cgroups(fds->cgroup_count);
  set_oom_score();
  enter_namespaces();
  new_session();
  become_root_inside();
  connect_agent();
  limit_capabilities();
  give_up_the_rest();
  check();
  open_null();
  alarm.it_value.tv_sec = 0;
  syscall(SYS_setitimer, ITIMER_REAL, &alarm, NULL);
  report.enter_micros = (uint32_t)(micros_now() - begun);
  // A warden that no longer waits for this has given the sandbox up.
  if (syscall(SYS_write, kReport, &report, sizeof(report)) != (long)sizeof(report))
    syscall(SYS_exit_group, 1);
  syscall(SYS_close, kReport);
  syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
}
