// The nursery: a pristine Python inside a sandbox, without any privilege, that forks kernels when
// the agent asks.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

enum { kSocket = 3 };

static int answer(int agent, const char* text) {
  return send(agent, text, strlen(text), MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static int failed(int agent, int error) {
  char text[128];
  snprintf(text, sizeof(text), "failed %s", strerror(error));
  return answer(agent, text);
}

// In the kernel: its socket at 3 and nothing else but 0-2.
static int place_socket(int fd) {
  if (fd != kSocket) {
    if (dup3(fd, kSocket, O_CLOEXEC) < 0) return -1;
  } else if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return -1;
  }
  if (syscall(SYS_close_range, (unsigned)kSocket + 1, ~0U, 0U) != 0) return -1;
  return setsid() < 0 ? -1 : 0;
}

ATOLL_EXPORT int atoll_nursery_fork(int agent) {
  char request[16];
  int fds[1];
  int count = 1;
  const long n = receive_with_fds(agent, request, sizeof(request), fds, &count);
  if (n == 0 || (n < 0 && n != -EMSGSIZE)) return -1;
  if (n != 4 || memcmp(request, "fork", 4) != 0 || count != 1) {
    for (int i = 0; i < count; ++i) close(fds[i]);
    return failed(agent, EPROTO);
  }
  python_before_fork();
  const pid_t made = fork_adopted(0);
  if (made == 0) {
    if (place_socket(fds[0]) < 0) _exit(1);
    python_after_fork_child();
    return 1;
  }
  python_after_fork_parent();
  close(fds[0]);
  if (made < 0) {
    const int told = failed(agent, -made);
    return made == ATOLL_FORK_SPOILT ? -1 : told;
  }
  char text[32];
  snprintf(text, sizeof(text), "pid %d", (int)made);
  return answer(agent, text);
}
