#include "runtime/jail/zygote.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>

#include "base/json.h"
#include "base/log.h"
#include "runtime/jail/stage.h"
#include "sys/datagram.h"
#include "sys/files.h"
#include "sys/mounts.h"
#include "sys/self.h"
#include "zygote/wire.h"

namespace atl::jail {
namespace {

constexpr sys::MountAttrs kPlain = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
constexpr std::size_t kMaxManifest = 64 << 10;
constexpr const char* kPython = "/usr/bin/python3";
constexpr const char* kScript = "/run/atoll/kernels/python/zygote.py";
constexpr int kChannelFd = 3;
constexpr int kSetupFd = 4;

constexpr std::array<std::string_view, atoll_step_count> kStepNames = {"",
                                                                       "warm.pid_namespace",
                                                                       "warm.fork",
                                                                       "warm.between",
                                                                       "warm.descriptors",
                                                                       "warm.cgroup",
                                                                       "warm.oom_score",
                                                                       "warm.namespaces",
                                                                       "warm.session",
                                                                       "warm.root",
                                                                       "warm.connect",
                                                                       "warm.bounding_set",
                                                                       "warm.groups",
                                                                       "warm.filter",
                                                                       "warm.user",
                                                                       "warm.capabilities",
                                                                       "warm.check",
                                                                       "warm.null"};

// What entering another's namespaces by its pidfd takes.
std::uint64_t zygote_capabilities() {
  return std::uint64_t(1) << CAP_SYS_ADMIN | std::uint64_t(1) << CAP_SYS_CHROOT |
         std::uint64_t(1) << CAP_SYS_PTRACE;
}

Result<void> only_roots(const sys::UniqueFd& file, const char* what) {
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(file));
  if (info.st_uid != 0 || (info.st_mode & 022) != 0)
    return make_error(Errc::permission_denied,
                      std::string("others than root can write the template's ") + what);
  return {};
}

// In memory that nobody can change any more.
Result<sys::UniqueFd> make_setup(const LaunchHost& host) {
  atoll_zygote_setup setup{};
  setup.magic = ATOLL_ZYGOTE_MAGIC;
  setup.version = ATOLL_ZYGOTE_VERSION;
  setup.keep_capabilities = kept_capabilities();
  setup.allow_count = std::uint32_t(host.filters.allow_list.size());
  setup.rules_count = std::uint32_t(host.filters.rules.size());
  setup.oom_score_adj = kChildOomScore;
  setup.fail_step = zygote_step_number(host.faults.fail_at);
  if (setup.allow_count > ATOLL_ZYGOTE_MAX_FILTER || setup.rules_count > ATOLL_ZYGOTE_MAX_FILTER)
    return make_error(Errc::internal, "the filters are too long");
  std::string bytes(reinterpret_cast<const char*>(&setup), sizeof(setup));
  for (const auto* program : {&host.filters.allow_list, &host.filters.rules})
    bytes.append(reinterpret_cast<const char*>(program->data()),
                 program->size() * sizeof(sock_filter));
  sys::UniqueFd file(::memfd_create("setup", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return errno_error("memfd_create");
  ATOLL_TRY(sys::write_value(file, bytes));
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return errno_error("lseek");
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) !=
      0)
    return errno_error("seal");
  return file;
}

Result<sys::DetachedMount> new_tmpfs(const Options& options, sys::MountAttrs attrs) {
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("tmpfs"));
  ATOLL_TRY(context.set("source", "zygote"));
  ATOLL_TRY(context.set_options(options));
  return context.mount(attrs);
}

// The zygote before it is one.
class Newborn {
 public:
  Newborn(sys::DetachedMount root, sys::UniqueFd channel, sys::UniqueFd setup)
      : root_(std::move(root)), channel_(std::move(channel)), setup_(std::move(setup)) {}

  // Returns only on failure.
  Error become() {
    auto done = prepare();
    if (!done) return std::move(done).error();
    return sys::exec(
        kPython, {"python3", kScript},
        {"LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"});
  }

 private:
  Result<void> prepare() {
    ATOLL_TRY(sys::set_parent_death(sys::WithParent::die));
    ATOLL_TRY(sys::new_session());
    ATOLL_TRY(sys::new_session_keyring());
    ATOLL_TRY(enter_root());
    ATOLL_TRY(fill_root());
    // Those of the sandboxes: what a child inherits, it need not set when it has no right to.
    const LimitResources limits = resource_limits();
    for (const ResourceLimit& limit : limits.limits) {
      ATOLL_TRY(sys::limit_resource(limit.resource, limit.soft, limit.hard));
    }
    sys::set_file_mask(limits.file_mask);
    ATOLL_TRY_ASSIGN(sys::UniqueFd null, sys::open_null());
    ATOLL_TRY(sys::place_descriptors({{null.get(), 0},
                                      {null.get(), 1},
                                      {2, 2},
                                      {channel_.get(), kChannelFd},
                                      {setup_.get(), kSetupFd}}));
    ATOLL_TRY(sys::reset_signals());
    return sys::limit_capabilities(zygote_capabilities());
  }

  Result<void> enter_root() {
    // By path: descriptors of the warden refer to its own mount namespace.
    ATOLL_TRY_ASSIGN(sys::UniqueFd stage,
                     sys::open_trusted(kStage, O_PATH | O_DIRECTORY | O_NOFOLLOW));
    ATOLL_TRY_ASSIGN(dev_, clone_part(stage, "dev"));
    ATOLL_TRY_ASSIGN(kernels_, clone_part(stage, kKernelsName));
    ATOLL_TRY_ASSIGN(sys::UniqueFd target, sys::open_beneath(stage, kStageRoot, O_PATH));
    ATOLL_TRY(root_.attach(target));
    ATOLL_TRY(sys::change_root(root_.fd()));
    ATOLL_TRY_ASSIGN(inside_, sys::open_trusted("/", O_PATH | O_DIRECTORY));
    return {};
  }

  Result<void> fill_root() {
    ATOLL_TRY(dev_.restrict_to(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
    ATOLL_TRY(attach(dev_, "dev"));
    // A place for the runners, which a template does not have.
    ATOLL_TRY_ASSIGN(sys::DetachedMount run,
                     new_tmpfs({{"mode", "0755"}, {"size", "64k"}, {"nr_inodes", "8"}},
                               kPlain | MOUNT_ATTR_NOEXEC));
    ATOLL_TRY(sys::make_dir(run.fd(), "atoll", 0755, sys::IfExists::fail));
    ATOLL_TRY_ASSIGN(sys::UniqueFd atoll,
                     sys::open_beneath(run.fd(), "atoll", O_RDONLY | O_DIRECTORY));
    ATOLL_TRY(sys::make_dir(atoll, kKernelsName, 0755, sys::IfExists::fail));
    ATOLL_TRY(run.restrict_to(MOUNT_ATTR_RDONLY));
    ATOLL_TRY(attach(run, "run"));
    ATOLL_TRY(kernels_.restrict_to(MOUNT_ATTR_RDONLY | kPlain));
    ATOLL_TRY(attach(kernels_, kKernelsDir + 1));
    ATOLL_TRY_ASSIGN(sys::DetachedMount tmp,
                     new_tmpfs({{"mode", "1777"}, {"size", "16m"}, {"nr_inodes", "1024"}},
                               kPlain | MOUNT_ATTR_NOEXEC));
    ATOLL_TRY(attach(tmp, "tmp"));
    ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("proc"));
    ATOLL_TRY_ASSIGN(sys::DetachedMount proc, context.mount(kPlain | MOUNT_ATTR_NOEXEC));
    ATOLL_TRY(attach(proc, "proc"));
    // Writable are files of processes only: a child sets its own score for the kernel's memory
    // shortage.
    for (const char* path : {"proc/sys", "proc/irq", "proc/bus", "proc/fs"}) {
      auto part = sys::open_beneath(inside_, path, O_PATH);
      if (!part && part.error().sys_errno == ENOENT) continue;
      if (!part) return std::move(part).error();
      ATOLL_TRY_ASSIGN(sys::DetachedMount copy, sys::DetachedMount::clone_tree(*part));
      ATOLL_TRY(copy.restrict_to(MOUNT_ATTR_RDONLY));
      ATOLL_TRY(copy.attach(*part));
    }
    return {};
  }

  static Result<sys::DetachedMount> clone_part(const sys::UniqueFd& stage, const char* name) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd part, sys::open_beneath(stage, name, O_PATH));
    return sys::DetachedMount::clone_tree(part);
  }
  Result<void> attach(const sys::DetachedMount& mount, const std::string& target) {
    auto at = sys::open_beneath(inside_, target, O_PATH | O_DIRECTORY);
    if (!at) return std::move(at).error().with("/" + target);
    return mount.attach(*at);
  }

  sys::DetachedMount root_, dev_, kernels_;
  sys::UniqueFd channel_, setup_, inside_;
};

}  // namespace

std::string_view zygote_step_name(std::uint32_t step) {
  return step < kStepNames.size() ? kStepNames[step] : std::string_view();
}

std::uint32_t zygote_step_number(std::string_view name) {
  for (std::uint32_t i = 1; i < kStepNames.size(); ++i) {
    if (kStepNames[i] == name) return i;
  }
  return 0;
}

Result<void> check_zygote_allowed(const sys::UniqueFd& templates, const std::string& template_id) {
  auto dir = sys::open_beneath(templates, template_id, O_RDONLY | O_DIRECTORY);
  if (!dir && dir.error().sys_errno == ENOENT)
    return make_error(Errc::not_found, "no template " + template_id);
  if (!dir) return std::move(dir).error();
  ATOLL_TRY(only_roots(templates, "directory"));
  ATOLL_TRY(only_roots(*dir, "directory"));
  ATOLL_TRY_ASSIGN(sys::UniqueFd manifest, sys::open_beneath(*dir, "manifest.json", O_RDONLY));
  ATOLL_TRY(only_roots(manifest, "manifest"));
  ATOLL_TRY_ASSIGN(sys::UniqueFd root, sys::open_beneath(*dir, "rootfs", O_RDONLY | O_DIRECTORY));
  ATOLL_TRY(only_roots(root, "root"));
  ATOLL_TRY_ASSIGN(std::string text, sys::read_all(manifest, kMaxManifest));
  ATOLL_TRY_ASSIGN(json::value document, parse_json(text));
  const json::value* wanted =
      document.is_object() ? document.get_object().if_contains("zygote") : nullptr;
  if (wanted == nullptr || !wanted->is_bool() || !wanted->get_bool())
    return make_error(Errc::permission_denied,
                      "the template " + template_id + " has no right to a zygote");
  return {};
}

Result<StartedZygote> start_zygote(const LaunchHost& host, const std::string& template_id) {
  ATOLL_TRY(check_zygote_allowed(host.templates, template_id));
  ATOLL_TRY_ASSIGN(sys::UniqueFd root, sys::open_beneath(host.templates, template_id + "/rootfs",
                                                         O_PATH | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(sys::DetachedMount tree, sys::DetachedMount::clone_tree(root));
  ATOLL_TRY(tree.restrict_to(MOUNT_ATTR_RDONLY | kPlain));
  ATOLL_TRY_ASSIGN(sys::UniqueFd setup, make_setup(host));
  ATOLL_TRY_ASSIGN(auto ends, sys::seqpacket_pair());
  ATOLL_TRY_ASSIGN(
      sys::Cloned cloned,
      sys::clone_process(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS, nullptr));
  if (cloned.pid == 0) {
    ends.first.reset();
    const Error error = Newborn(std::move(tree), std::move(ends.second), std::move(setup)).become();
    log::error("a zygote could not start", {{"template", template_id}, {"error", error.message}});
    sys::exit_now(1);
  }
  return StartedZygote{sys::Child(cloned.pid, std::move(cloned.pidfd)), std::move(ends.first)};
}

}  // namespace atl::jail
