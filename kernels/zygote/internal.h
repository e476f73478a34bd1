// Between the files of this library. See README.md.
#pragma once

#include <errno.h>
#include <linux/filter.h>
#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

#define ATOLL_EXPORT __attribute__((visibility("default")))
#define ATOLL_MAX_GROUPS 64

// What a zygote knows from its start; the same for every sandbox.
struct zygote_state {
  struct atoll_zygote_setup setup;
  struct sock_filter filters[2][ATOLL_ZYGOTE_MAX_FILTER];
  uid_t uid;
  gid_t gid;
  gid_t groups[ATOLL_MAX_GROUPS];
  int group_count;
  cpu_set_t affinity;
  int own_pid_namespace;
  int namespaces;  // flags for setns
};
extern struct zygote_state zygote;

// Descriptors of a request.
struct entry_fds {
  int report;
  int pidfd;
  int cgroups[ATOLL_ZYGOTE_MAX_CGROUPS];
  unsigned cgroup_count;
};

// In the new process: enters the sandbox and gives everything up. Only system calls: between
// entering and the end nothing of the sandbox is opened and no other library's code runs. Returns
// in the nursery, or ends the process.
void enter_sandbox(const struct entry_fds* fds, uint64_t asked_at);

// Forks through a process that shares our memory and ends at once, so that the new one is adopted
// by the first process of its pid namespace. Returns 0 in the new process; here its pid as the
// process in between sees it, or -errno. ATOLL_FORK_SPOILT: the process in between was killed; this
// one must not fork again, and ends. `dies`: for tests, it is.
#define ATOLL_FORK_SPOILT (-ENOTRECOVERABLE)
pid_t fork_adopted(int dies);

// One datagram with descriptors, close-on-exec. The number of bytes; 0 at the peer's end; <0:
// -errno.
long receive_with_fds(int socket, void* into, unsigned long size, int* fds, int* fd_count);

uint64_t micros_now(void);
void python_before_fork(void);
void python_after_fork_parent(void);
void python_after_fork_child(void);
int thread_count(void);
