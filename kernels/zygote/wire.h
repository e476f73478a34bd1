// What the warden, a zygote and a process on its way into a sandbox say to each other: numbers of
// fixed size, and descriptors beside them. C and C++. Nothing here carries text, a path or an id:
// the memory of a zygote is the memory of every sandbox.
#pragma once

#include <stdint.h>

#define ATOLL_ZYGOTE_MAGIC 0x7a79676fu
#define ATOLL_ZYGOTE_VERSION 1u
#define ATOLL_ZYGOTE_MAX_CGROUPS 16
#define ATOLL_ZYGOTE_MAX_FILTER 4096

// The content of the zygote's descriptor 4, then `allow_count` and `rules_count` struct
// sock_filter: the filters of every sandbox's first process, in the order in which they are
// installed.
struct atoll_zygote_setup {
  uint32_t magic;
  uint32_t version;
  uint64_t keep_capabilities;  // what stays in the bounding set, bit n = capability n
  uint32_t allow_count;
  uint32_t rules_count;
  int32_t oom_score_adj;  // as the agent gives its children
  uint32_t fail_step;     // tests: fail at this step; 0 = none
};

// Zygote to warden, once.
struct atoll_zygote_ready {
  uint32_t magic;
  uint32_t version;
};

// Warden to zygote. Beside it: the end of a pipe for the report, the pidfd of the sandbox's first
// process, and `cgroup_count` files into which a process writes "0" to enter a cgroup.
struct atoll_zygote_request {
  uint32_t magic;
  uint32_t cgroup_count;
};

// In order. Up to `namespaces` (included) the process has not entered; what fails after it, except
// for `connect`, is a matter of security.
enum atoll_zygote_step {
  atoll_step_none = 0,
  atoll_step_pid_namespace,
  atoll_step_fork,
  atoll_step_between,  // the process that forks was killed: the zygote ends, too
  atoll_step_descriptors,
  atoll_step_cgroup,
  atoll_step_oom_score,
  atoll_step_namespaces,
  atoll_step_session,
  atoll_step_root,
  atoll_step_connect,
  atoll_step_bounding_set,
  atoll_step_groups,
  atoll_step_filter,
  atoll_step_user,
  atoll_step_capabilities,
  atoll_step_check,
  atoll_step_null,
  atoll_step_count
};

// The process on its way in (or the zygote, for the first three steps) to the warden, once. The end
// of the pipe without it: it died.
struct atoll_zygote_report {
  uint32_t magic;
  uint32_t step;  // that failed; none = it is the nursery now
  int32_t error;  // errno
  uint32_t entered;
  uint32_t fork_micros;   // from the request's reading to the first instruction of the child
  uint32_t enter_micros;  // from there to this report
};
