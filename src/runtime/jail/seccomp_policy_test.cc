// Runs the compiled programs through a small interpreter of the filter machine: what is tested is
// what the kernel gets.
#include "runtime/jail/seccomp_policy.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>

namespace atl::jail {
namespace {

// Classic BPF as seccomp allows it. Anything else is a failure of the test.
std::uint32_t run(const std::vector<sock_filter>& program, const seccomp_data& data) {
  std::uint32_t a = 0;
  std::uint32_t x = 0;
  std::uint32_t memory[16] = {};
  for (std::size_t pc = 0; pc < program.size(); ++pc) {
    const sock_filter& f = program[pc];
    const std::uint32_t operand = BPF_SRC(f.code) == BPF_X ? x : f.k;
    switch (BPF_CLASS(f.code)) {
      case BPF_LD:
        if (BPF_MODE(f.code) == BPF_ABS) {
          std::memcpy(&a, reinterpret_cast<const char*>(&data) + f.k, 4);
        } else if (BPF_MODE(f.code) == BPF_IMM) {
          a = f.k;
        } else {
          a = memory[f.k];
        }
        break;
      case BPF_LDX:
        x = BPF_MODE(f.code) == BPF_IMM ? f.k : memory[f.k];
        break;
      case BPF_ST:
        memory[f.k] = a;
        break;
      case BPF_STX:
        memory[f.k] = x;
        break;
      case BPF_ALU:
        if (BPF_OP(f.code) == BPF_AND) {
          a &= operand;
        } else if (BPF_OP(f.code) == BPF_OR) {
          a |= operand;
        } else {
          ADD_FAILURE() << "alu " << f.code;
        }
        break;
      case BPF_JMP: {
        if (BPF_OP(f.code) == BPF_JA) {
          pc += f.k;
          break;
        }
        bool taken = false;
        if (BPF_OP(f.code) == BPF_JEQ) taken = a == operand;
        if (BPF_OP(f.code) == BPF_JGT) taken = a > operand;
        if (BPF_OP(f.code) == BPF_JGE) taken = a >= operand;
        if (BPF_OP(f.code) == BPF_JSET) taken = (a & operand) != 0;
        pc += taken ? f.jt : f.jf;
        break;
      }
      case BPF_RET:
        return f.k;
      default:
        ADD_FAILURE() << "code " << f.code;
        return 0;
    }
  }
  ADD_FAILURE() << "ran off the end";
  return 0;
}

class SeccompPolicy : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto compiled = compile_seccomp_policy();
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    programs_ = new SeccompPrograms(std::move(*compiled));
  }
  static void TearDownTestSuite() { delete programs_; }

  // As the kernel combines them: the lower action wins, the filter installed last wins a tie.
  static std::uint32_t decide(long call, std::initializer_list<std::uint64_t> args = {},
                              std::uint32_t arch = AUDIT_ARCH_X86_64) {
    seccomp_data data{};
    data.nr = int(call);
    data.arch = arch;
    std::copy(args.begin(), args.end(), data.args);
    const std::uint32_t last = run(programs_->rules, data);
    const std::uint32_t first = run(programs_->allow_list, data);
    const auto action = [](std::uint32_t value) {
      return std::int32_t(value & SECCOMP_RET_ACTION_FULL);
    };
    return action(first) < action(last) ? first : last;
  }
  static std::uint32_t refused(int error) { return SECCOMP_RET_ERRNO | std::uint32_t(error); }

  static SeccompPrograms* programs_;
};

SeccompPrograms* SeccompPolicy::programs_ = nullptr;

TEST_F(SeccompPolicy, OrdinaryCallsPass) {
  for (long call :
       {SYS_read, SYS_openat, SYS_execve, SYS_clone, SYS_fork, SYS_socket, SYS_mmap, SYS_futex,
        SYS_setresuid, SYS_ptrace, SYS_capset, SYS_seccomp, SYS_inotify_add_watch, SYS_ioctl,
        SYS_statx, SYS_unshare, SYS_chroot, SYS_rseq}) {
    EXPECT_EQ(decide(call, {call == SYS_socket ? std::uint64_t(AF_INET) : 0}), SECCOMP_RET_ALLOW)
        << call;
  }
  EXPECT_EQ(decide(452), SECCOMP_RET_ALLOW) << "fchmodat2";
}

TEST_F(SeccompPolicy, UnknownAndUndumpableCallsDoNotExist) {
  for (long call : {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_userfaultfd,
                    SYS_clone3, SYS_landlock_create_ruleset, SYS_memfd_secret, 457, 600, 1000000}) {
    EXPECT_EQ(decide(call), refused(ENOSYS)) << call;
  }
}

TEST_F(SeccompPolicy, PrivilegedCallsAreRefused) {
  for (long call : {SYS_bpf,
                    SYS_perf_event_open,
                    SYS_keyctl,
                    SYS_add_key,
                    SYS_request_key,
                    SYS_mount,
                    SYS_umount2,
                    SYS_pivot_root,
                    SYS_fsopen,
                    SYS_fsconfig,
                    SYS_fsmount,
                    SYS_fspick,
                    SYS_move_mount,
                    SYS_open_tree,
                    SYS_mount_setattr,
                    SYS_setns,
                    SYS_kexec_load,
                    SYS_kexec_file_load,
                    SYS_init_module,
                    SYS_finit_module,
                    SYS_delete_module,
                    SYS_reboot,
                    SYS_swapon,
                    SYS_swapoff,
                    SYS_open_by_handle_at,
                    SYS_iopl,
                    SYS_ioperm,
                    SYS_acct,
                    SYS_quotactl,
                    SYS_settimeofday,
                    SYS_clock_settime,
                    SYS_sethostname,
                    SYS_syslog,
                    SYS_fanotify_init}) {
    EXPECT_EQ(decide(call), refused(EPERM)) << call;
  }
}

TEST_F(SeccompPolicy, NoNewNamespaces) {
  for (std::uint64_t flag : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC,
                             CLONE_NEWUTS, CLONE_NEWCGROUP}) {
    EXPECT_EQ(decide(SYS_clone, {flag | 17}), refused(EPERM)) << flag;
    EXPECT_EQ(decide(SYS_unshare, {flag}), refused(EPERM)) << flag;
    EXPECT_EQ(decide(SYS_unshare, {flag | 0xdeadbeef00000000}), refused(EPERM)) << flag;
  }
  EXPECT_EQ(decide(SYS_unshare, {0x80}), refused(EPERM)) << "time namespace";
  EXPECT_EQ(decide(SYS_unshare, {CLONE_FILES}), SECCOMP_RET_ALLOW);
  EXPECT_EQ(decide(SYS_clone, {CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                               CLONE_SETTLS}),
            SECCOMP_RET_ALLOW);
  EXPECT_EQ(decide(SYS_clone, {CLONE_VM | CLONE_VFORK | 17}), SECCOMP_RET_ALLOW);
}

TEST_F(SeccompPolicy, TerminalsCannotBeTypedInto) {
  EXPECT_EQ(decide(SYS_ioctl, {0, TIOCSTI}), refused(EPERM));
  EXPECT_EQ(decide(SYS_ioctl, {0, TIOCLINUX}), refused(EPERM));
  // The kernel looks at 32 bits of the request.
  EXPECT_EQ(decide(SYS_ioctl, {0, TIOCSTI | 0x100000000}), refused(EPERM));
  EXPECT_EQ(decide(SYS_ioctl, {0, TIOCGWINSZ}), SECCOMP_RET_ALLOW);
}

TEST_F(SeccompPolicy, SocketFamilies) {
  for (std::uint64_t family : {AF_UNIX, AF_INET, AF_INET6})
    EXPECT_EQ(decide(SYS_socket, {family, 1, 0}), SECCOMP_RET_ALLOW);
  for (std::uint64_t family = 0; family < 64; ++family) {
    if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
      continue;
    EXPECT_EQ(decide(SYS_socket, {family, 3, 0}), refused(EAFNOSUPPORT)) << family;
    EXPECT_EQ(decide(SYS_socket, {family | 0x700000000, 3, 0}), refused(EAFNOSUPPORT)) << family;
    EXPECT_EQ(decide(SYS_socketpair, {family, 1, 0}), refused(EAFNOSUPPORT)) << family;
  }
  EXPECT_EQ(decide(SYS_socket, {AF_NETLINK, 3, 0}), SECCOMP_RET_ALLOW) << "route";
  for (std::uint64_t protocol : {6, 9, 11, 12, 16, 21}) {
    EXPECT_EQ(decide(SYS_socket, {AF_NETLINK, 3, protocol}), refused(EPROTONOSUPPORT)) << protocol;
  }
  for (std::uint64_t protocol : {132, 33, 115, 262}) {
    EXPECT_EQ(decide(SYS_socket, {AF_INET, 1, protocol}), refused(EPROTONOSUPPORT)) << protocol;
    EXPECT_EQ(decide(SYS_socket, {AF_INET6, 1, protocol}), refused(EPROTONOSUPPORT)) << protocol;
  }
  EXPECT_EQ(decide(SYS_socket, {AF_INET, SOCK_RAW, 1}), SECCOMP_RET_ALLOW) << "ping";
}

TEST_F(SeccompPolicy, Personalities) {
  for (std::uint64_t value : {0x0ull, 0x20000ull, 0x40000ull, 0xffffffffull}) {
    EXPECT_EQ(decide(SYS_personality, {value}), SECCOMP_RET_ALLOW) << value;
  }
  for (std::uint64_t value : {0x8ull, 0x400000ull, 0x100000ull, 0x0004ull}) {
    EXPECT_NE(decide(SYS_personality, {value}), SECCOMP_RET_ALLOW) << value;
  }
}

TEST_F(SeccompPolicy, OtherAbisEndTheProcess) {
  EXPECT_EQ(decide(1, {}, AUDIT_ARCH_I386), SECCOMP_RET_KILL_PROCESS);
  EXPECT_EQ(decide(SYS_read, {}, AUDIT_ARCH_AARCH64), SECCOMP_RET_KILL_PROCESS);
  EXPECT_EQ(decide(0x40000000 | SYS_getpid), SECCOMP_RET_KILL_PROCESS) << "x32";
}

TEST_F(SeccompPolicy, TablesDoNotContradict) {
  std::set<std::string> allowed;
  for (const AllowedCall& call : allowed_calls())
    EXPECT_TRUE(allowed.insert(call.name).second) << call.name << " twice";
  for (const RefusedCall& call : refused_calls()) {
    if (call.when.empty()) EXPECT_FALSE(allowed.contains(call.name)) << call.name;
    if (!call.when.empty()) EXPECT_TRUE(allowed.contains(call.name)) << call.name;
  }
}

}  // namespace
}  // namespace atl::jail
