#include "runtime/jail/seccomp_policy.h"

#include <linux/netlink.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "sys/datagram.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

// Made for: Python, Node, R, Java, Go, gcc, git, apt and dpkg, sudo, su, ssh, tmux, gdb, strace,
// databases.
// clang-format off
constexpr AllowedCall kAllowed[] = {
    // files
    {"access"}, {"chdir"}, {"chmod"}, {"chown"}, {"chroot"}, {"close"}, {"close_range"},
    {"copy_file_range"}, {"creat"}, {"dup"}, {"dup2"}, {"dup3"}, {"faccessat"}, {"faccessat2"},
    {"fadvise64"}, {"fallocate"}, {"fchdir"}, {"fchmod"}, {"fchmodat"}, {"fchmodat2", 452},
    {"fchown"}, {"fchownat"}, {"fcntl"}, {"fdatasync"}, {"fgetxattr"}, {"flistxattr"}, {"flock"},
    {"fremovexattr"}, {"fsetxattr"}, {"fstat"}, {"fstatfs"}, {"fsync"}, {"ftruncate"},
    {"futimesat"}, {"getcwd"}, {"getdents"}, {"getdents64"}, {"getxattr"}, {"getxattrat", 464},
    {"inotify_add_watch"}, {"inotify_init"}, {"inotify_init1"}, {"inotify_rm_watch"}, {"ioctl"},
    {"lchown"}, {"lgetxattr"}, {"link"}, {"linkat"}, {"listxattr"}, {"listxattrat", 465},
    {"llistxattr"}, {"lremovexattr"}, {"lseek"}, {"lsetxattr"}, {"lstat"}, {"mkdir"}, {"mkdirat"},
    {"mknod"}, {"mknodat"}, {"name_to_handle_at"}, {"newfstatat"}, {"open"}, {"openat"},
    {"openat2"}, {"pread64"}, {"preadv"}, {"preadv2"}, {"pwrite64"}, {"pwritev"}, {"pwritev2"},
    {"read"}, {"readahead"}, {"readlink"}, {"readlinkat"}, {"readv"}, {"removexattr"},
    {"removexattrat", 466}, {"rename"}, {"renameat"}, {"renameat2"}, {"rmdir"}, {"sendfile"},
    {"setxattr"}, {"setxattrat", 463}, {"splice"}, {"stat"}, {"statfs"}, {"statx"}, {"symlink"},
    {"symlinkat"}, {"sync"}, {"sync_file_range"}, {"syncfs"}, {"tee"}, {"truncate"}, {"umask"},
    {"unlink"}, {"unlinkat"}, {"utime"}, {"utimensat"}, {"utimes"}, {"vmsplice"}, {"write"},
    {"writev"}, {"cachestat", 451},
    // waiting, timers, events
    {"alarm"}, {"clock_adjtime"}, {"adjtimex"}, {"clock_getres"}, {"clock_gettime"},
    {"clock_nanosleep"}, {"epoll_create"}, {"epoll_create1"}, {"epoll_ctl"}, {"epoll_ctl_old"},
    {"epoll_pwait"}, {"epoll_pwait2"}, {"epoll_wait"}, {"epoll_wait_old"}, {"eventfd"},
    {"eventfd2"}, {"futex"}, {"futex_requeue", 456}, {"futex_wait", 455}, {"futex_waitv", 449},
    {"futex_wake", 454}, {"get_robust_list"}, {"getitimer"}, {"gettimeofday"}, {"nanosleep"},
    {"pause"}, {"pipe"}, {"pipe2"}, {"poll"}, {"ppoll"}, {"pselect6"}, {"restart_syscall"},
    {"select"}, {"set_robust_list"}, {"setitimer"}, {"signalfd"}, {"signalfd4"}, {"time"},
    {"timer_create"}, {"timer_delete"}, {"timer_getoverrun"}, {"timer_gettime"}, {"timer_settime"},
    {"timerfd_create"}, {"timerfd_gettime"}, {"timerfd_settime"}, {"times"},
    // memory
    {"brk"}, {"get_mempolicy"}, {"madvise"}, {"map_shadow_stack", 453}, {"mbind"}, {"membarrier"},
    {"memfd_create"}, {"mincore"}, {"mlock"}, {"mlock2"}, {"mlockall"}, {"mmap"}, {"mprotect"},
    {"mremap"}, {"mseal", 462}, {"msync"}, {"munlock"}, {"munlockall"}, {"munmap"}, {"pkey_alloc"},
    {"pkey_free"}, {"pkey_mprotect"}, {"process_madvise"}, {"process_mrelease", 448},
    {"process_vm_readv"}, {"process_vm_writev"}, {"remap_file_pages"}, {"set_mempolicy"},
    {"set_mempolicy_home_node", 450},
    // processes, identity, scheduling
    {"arch_prctl"}, {"capget"}, {"capset"}, {"clone"}, {"execve"}, {"execveat"}, {"exit"},
    {"exit_group"}, {"fork"}, {"getcpu"}, {"getegid"}, {"geteuid"}, {"getgid"}, {"getgroups"},
    {"getpgid"}, {"getpgrp"}, {"getpid"}, {"getppid"}, {"getpriority"}, {"getrandom"},
    {"getresgid"}, {"getresuid"}, {"getrlimit"}, {"getrusage"}, {"getsid"}, {"gettid"}, {"getuid"},
    {"ioprio_get"}, {"ioprio_set"}, {"kcmp"}, {"kill"}, {"personality"}, {"pidfd_getfd"},
    {"pidfd_open"}, {"pidfd_send_signal"}, {"prctl"}, {"prlimit64"}, {"ptrace"}, {"rseq"},
    {"rt_sigaction"}, {"rt_sigpending"}, {"rt_sigprocmask"}, {"rt_sigqueueinfo"}, {"rt_sigreturn"},
    {"rt_sigsuspend"}, {"rt_sigtimedwait"}, {"rt_tgsigqueueinfo"}, {"sched_get_priority_max"},
    {"sched_get_priority_min"}, {"sched_getaffinity"}, {"sched_getattr"}, {"sched_getparam"},
    {"sched_getscheduler"}, {"sched_rr_get_interval"}, {"sched_setaffinity"}, {"sched_setattr"},
    {"sched_setparam"}, {"sched_setscheduler"}, {"sched_yield"}, {"seccomp"}, {"set_thread_area"},
    {"get_thread_area"}, {"set_tid_address"}, {"setfsgid"}, {"setfsuid"}, {"setgid"}, {"setgroups"},
    {"setpgid"}, {"setpriority"}, {"setregid"}, {"setresgid"}, {"setresuid"}, {"setreuid"},
    {"setrlimit"}, {"setsid"}, {"setuid"}, {"sigaltstack"}, {"sysinfo"}, {"tgkill"}, {"tkill"},
    {"uname"}, {"unshare"}, {"vfork"}, {"wait4"}, {"waitid"},
    // sockets and System V, POSIX message passing
    {"accept"}, {"accept4"}, {"bind"}, {"connect"}, {"getpeername"}, {"getsockname"},
    {"getsockopt"}, {"listen"}, {"mq_getsetattr"}, {"mq_notify"}, {"mq_open"}, {"mq_timedreceive"},
    {"mq_timedsend"}, {"mq_unlink"}, {"msgctl"}, {"msgget"}, {"msgrcv"}, {"msgsnd"}, {"recvfrom"},
    {"recvmmsg"}, {"recvmsg"}, {"semctl"}, {"semget"}, {"semop"}, {"semtimedop"}, {"sendmmsg"},
    {"sendmsg"}, {"sendto"}, {"setsockopt"}, {"shmat"}, {"shmctl"}, {"shmdt"}, {"shmget"},
    {"shutdown"}, {"socket"}, {"socketpair"},
};
// clang-format on

// Not in the table, hence ENOSYS, on purpose: io_uring_* and userfaultfd (cannot be dumped, large
// attack surface), clone3 (its flags are in memory, where a filter cannot look; the C library falls
// back to clone), landlock_* (would be lost without a word by dump and restore), io_setup and its
// kin (fs.aio-max-nr is one supply for the whole machine; databases fall back to threads),
// memfd_secret, and everything newer than this table.

// Exist for programs that ask politely, always refused.
// clang-format off
constexpr const char* kRefused[] = {
    "acct", "add_key", "bpf", "clock_settime", "delete_module", "fanotify_init", "fanotify_mark",
    "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "ioperm", "iopl",
    "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "migrate_pages", "mount",
    "mount_setattr", "move_mount", "move_pages", "open_by_handle_at", "open_tree",
    "perf_event_open", "pivot_root", "quotactl", "quotactl_fd", "reboot", "request_key",
    "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog",
    "umount2", "vhangup",
};
// clang-format on

constexpr std::uint64_t kLow = 0xffffffff;

// New namespaces would be a way to capabilities that the sandbox's root does not have.
constexpr std::uint64_t kNamespaceFlags[] = {CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET,
                                             CLONE_NEWNS,     CLONE_NEWPID, CLONE_NEWUSER,
                                             CLONE_NEWUTS};
constexpr std::uint64_t kNewTime = 0x80;  // part of the exit signal in clone, a flag in unshare

constexpr int kFamilies[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
constexpr int kNetlink[] = {NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT};
// Protocols that load kernel modules nobody needs here: DCCP, L2TP, SCTP, MPTCP.
constexpr int kRefusedProtocols[] = {33, 115, 132, 262};

// What `personality` may be asked for: to tell what is set, plain Linux, the kernel-version
// compatibility flag, and no address randomisation, which debuggers want.
constexpr std::uint64_t kPersonalities[] = {0x0, 0x20000, 0x40000, 0x60000, 0xffffffff};

template <class List, class Value>
bool is_in(const List& list, Value value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

using Context = std::unique_ptr<void, decltype(&seccomp_release)>;

Error seccomp_error(std::string_view what, int result) { return errno_error(what, -result); }

Result<Context> new_context(std::uint32_t default_action) {
  Context context(seccomp_init(default_action), &seccomp_release);
  if (!context) return make_error(Errc::internal, "seccomp_init");
  if (int rc = seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
      rc < 0) {
    return seccomp_error("set the action for other ABIs", rc);
  }
  // A balanced tree over the numbers instead of a list.
  if (int rc = seccomp_attr_set(context.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2); rc < 0) {
    return seccomp_error("choose the tree", rc);
  }
  return context;
}

Result<int> number_of(const std::string& name, int number) {
  if (number >= 0) return number;
  const int resolved = seccomp_syscall_resolve_name(name.c_str());
  if (resolved == __NR_SCMP_ERROR) return make_error(Errc::internal, "unknown system call " + name);
  return resolved;
}

// The library writes programs to a descriptor only.
Result<std::vector<sock_filter>> export_program(const Context& context) {
  sys::UniqueFd file(::memfd_create("seccomp", MFD_CLOEXEC));
  if (!file) return errno_error("memfd_create");
  if (int rc = seccomp_export_bpf(context.get(), file.get()); rc < 0)
    return seccomp_error("compile", rc);
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return errno_error("lseek");
  ATOLL_TRY_ASSIGN(std::string bytes, sys::read_all(file, BPF_MAXINSNS * sizeof(sock_filter)));
  std::vector<sock_filter> program(bytes.size() / sizeof(sock_filter));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(program.data()));
  return program;
}

Result<std::vector<sock_filter>> compile_allow_list() {
  ATOLL_TRY_ASSIGN(Context context, new_context(SCMP_ACT_ERRNO(ENOSYS)));
  const auto allow = [&](const std::string& name, int number, unsigned count,
                         const scmp_arg_cmp* compare) -> Result<void> {
    ATOLL_TRY_ASSIGN(int call, number_of(name, number));
    if (call < 0) return {};  // a call of other architectures only
    const int rc = seccomp_rule_add_array(context.get(), SCMP_ACT_ALLOW, call, count, compare);
    if (rc < 0 && rc != -EEXIST) return seccomp_error("allow " + name, rc);
    return {};
  };
  for (const AllowedCall& call : kAllowed) {
    if (std::string_view(call.name) == "personality") continue;
    ATOLL_TRY(allow(call.name, call.number, 0, nullptr));
  }
  for (std::uint64_t value : kPersonalities) {
    const scmp_arg_cmp compare{0, SCMP_CMP_MASKED_EQ, kLow, value};
    ATOLL_TRY(allow("personality", -1, 1, &compare));
  }
  // Refused calls pass here, so that the second filter's errno counts.
  return export_program(context);
}

Result<std::vector<sock_filter>> compile_rules() {
  ATOLL_TRY_ASSIGN(Context context, new_context(SCMP_ACT_ALLOW));
  for (const RefusedCall& call : refused_calls()) {
    ATOLL_TRY_ASSIGN(int number, number_of(call.name, -1));
    if (number < 0) continue;
    std::vector<scmp_arg_cmp> compare;
    for (const ArgumentMatch& match : call.when) {
      compare.push_back({match.index, SCMP_CMP_MASKED_EQ, match.mask, match.value});
    }
    const int rc = seccomp_rule_add_array(context.get(), SCMP_ACT_ERRNO(std::uint16_t(call.error)),
                                          number, unsigned(compare.size()), compare.data());
    if (rc < 0 && rc != -EEXIST) return seccomp_error("refuse " + call.name, rc);
  }
  return export_program(context);
}

}  // namespace

std::span<const AllowedCall> allowed_calls() { return kAllowed; }

std::vector<RefusedCall> refused_calls() {
  std::vector<RefusedCall> out;
  for (const char* name : kRefused) out.push_back({name, EPERM, {}});
  for (std::uint64_t flag : kNamespaceFlags) {
    for (const char* name : {"clone", "unshare"}) out.push_back({name, EPERM, {{0, flag, flag}}});
  }
  out.push_back({"unshare", EPERM, {{0, kNewTime, kNewTime}}});
  // Typing into somebody else's terminal.
  for (std::uint64_t request : {TIOCSTI, TIOCLINUX})
    out.push_back({"ioctl", EPERM, {{1, kLow, request}}});
  for (int family = 0; family < 64; ++family) {
    if (is_in(kFamilies, family)) continue;
    for (const char* name : {"socket", "socketpair"})
      out.push_back({name, EAFNOSUPPORT, {{0, kLow, std::uint64_t(family)}}});
  }
  for (int protocol = 0; protocol < 32; ++protocol) {
    if (is_in(kNetlink, protocol)) continue;
    out.push_back(
        {"socket", EPROTONOSUPPORT, {{0, kLow, AF_NETLINK}, {2, kLow, std::uint64_t(protocol)}}});
  }
  for (int protocol : kRefusedProtocols) {
    for (std::uint64_t family : {AF_INET, AF_INET6}) {
      out.push_back(
          {"socket", EPROTONOSUPPORT, {{0, kLow, family}, {2, kLow, std::uint64_t(protocol)}}});
    }
  }
  return out;
}

Result<SeccompPrograms> compile_seccomp_policy() {
  SeccompPrograms programs;
  auto allow = compile_allow_list();
  if (!allow) return std::move(allow).error().with("allow-list");
  programs.allow_list = std::move(*allow);
  auto rules = compile_rules();
  if (!rules) return std::move(rules).error().with("rules");
  programs.rules = std::move(*rules);
  return programs;
}

}  // namespace atl::jail
