// Forking a Python process by hand, and small things that zygote and nursery share.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

typedef void (*hook)(void);

static void run_hook(const char* name, hook* known) {
  if (*known == NULL) *known = (hook)dlsym(RTLD_DEFAULT, name);
  if (*known != NULL) (*known)();
}

// What os.fork() calls around its fork. All three are looked up before the first fork: `before`
// runs first.
static hook before, parent, child;

void python_before_fork(void) {
  if (child == NULL) {
    parent = (hook)dlsym(RTLD_DEFAULT, "PyOS_AfterFork_Parent");
    child = (hook)dlsym(RTLD_DEFAULT, "PyOS_AfterFork_Child");
  }
  run_hook("PyOS_BeforeFork", &before);
}
void python_after_fork_parent(void) { run_hook("PyOS_AfterFork_Parent", &parent); }
void python_after_fork_child(void) { run_hook("PyOS_AfterFork_Child", &child); }

// By the wall clock: the others are those of a time namespace, and a sandbox that came back from
// files has one of its own.
uint64_t micros_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

// Not inlined: the frame from which vfork returns twice holds nothing else.
//
// The process in between is in the pid namespace, and ends with it at any moment; then whatever it
// held in the memory that it shares with us (the C library has locks around a fork) is held for
// ever, here and in every copy: from glibc 2.41 on no copy could start a program any more.
__attribute__((noinline)) pid_t fork_adopted(int dies) {
  static volatile pid_t made;  // written in between, in the memory of the caller
  made = -EAGAIN;
  const pid_t between = vfork();
  if (between < 0) return -errno;
  if (between == 0) {
    if (dies) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    const pid_t inner = fork();
    if (inner == 0) return 0;
    made = inner < 0 ? -errno : inner;
    _exit(0);
  }
  int status = 0;
  while (waitpid(between, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? made : ATOLL_FORK_SPOILT;
}

long receive_with_fds(int socket, void* into, unsigned long size, int* fds, int* fd_count) {
  const int most = *fd_count;
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * (ATOLL_ZYGOTE_MAX_CGROUPS + 2))];
  } control;
  struct iovec part = {into, size};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = CMSG_SPACE(sizeof(int) * (unsigned)most)};
  *fd_count = 0;
  ssize_t n;
  do {
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return -errno;
  for (struct cmsghdr* c = CMSG_FIRSTHDR(&message); c != NULL; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const int count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    for (int i = 0; i < count && *fd_count < most; ++i)
      memcpy(&fds[(*fd_count)++], CMSG_DATA(c) + sizeof(int) * (unsigned)i, sizeof(int));
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    for (int i = 0; i < *fd_count; ++i) close(fds[i]);
    *fd_count = 0;
    return -EMSGSIZE;
  }
  return n;
}

int thread_count(void) {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == NULL) return -1;
  int count = 0;
  for (struct dirent* entry; (entry = readdir(tasks)) != NULL;) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

ATOLL_EXPORT int atoll_threads(void) { return thread_count(); }
