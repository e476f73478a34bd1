#include "runtime/jail/stage.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "runtime/jail/plan.h"
#include "sys/files.h"
#include "sys/mounts.h"

namespace atl::jail {
namespace {

struct Node {
  const char* name;
  unsigned major;
  unsigned minor;
};
constexpr Node kNodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                           {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

struct Link {
  const char* name;
  const char* target;
};
constexpr Link kLinks[] = {{"fd", "/proc/self/fd"},
                           {"stdin", "/proc/self/fd/0"},
                           {"stdout", "/proc/self/fd/1"},
                           {"stderr", "/proc/self/fd/2"},
                           {"ptmx", "pts/ptmx"}};

constexpr const char* kMountPoints[] = {"pts", "shm", "mqueue"};
constexpr std::size_t kMaxAgentBytes = 512u << 20;
// Of the runners; far above what they need.
constexpr std::size_t kMaxKernelBytes = 64u << 20;
constexpr std::size_t kMaxKernelEntries = 1024;
constexpr int kMaxKernelDepth = 8;

Result<void> fill_dev(const sys::UniqueFd& root) {
  ATOLL_TRY(sys::make_dir(root, "dev", 0755, sys::IfExists::fail));
  ATOLL_TRY_ASSIGN(sys::UniqueFd dev, sys::open_beneath(root, "dev", O_RDONLY | O_DIRECTORY));
  for (const Node& node : kNodes) {
    ATOLL_TRY(sys::make_device(dev, node.name, node.major, node.minor, 0666));
  }
  for (const Link& link : kLinks) {
    ATOLL_TRY(sys::make_symlink(dev, link.name, link.target));
  }
  for (const char* name : kMountPoints) {
    ATOLL_TRY(sys::make_dir(dev, name, 0755, sys::IfExists::fail));
  }
  return {};
}

// A tree of directories and regular files; anything else, links too, is refused. Everybody may read
// all of it.
class TreeCopy {
 public:
  Result<void> copy(const sys::UniqueFd& from, const sys::UniqueFd& to, int depth) {
    if (depth > kMaxKernelDepth) return make_error(Errc::failed_precondition, "too deep");
    ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(from));
    for (const std::string& name : names) {
      auto copied = copy_entry(from, to, name, depth);
      if (!copied) return std::move(copied).error().with(name);
    }
    return {};
  }

 private:
  Result<void> copy_entry(const sys::UniqueFd& from, const sys::UniqueFd& to,
                          const std::string& name, int depth) {
    if (++entries_ > kMaxKernelEntries)
      return make_error(Errc::failed_precondition, "too many files");
    ATOLL_TRY_ASSIGN(struct stat info, sys::stat_at(from, name));
    if (S_ISDIR(info.st_mode)) {
      ATOLL_TRY(sys::make_dir(to, name, 0755, sys::IfExists::fail));
      ATOLL_TRY_ASSIGN(sys::UniqueFd source, sys::open_beneath(from, name, O_RDONLY | O_DIRECTORY));
      ATOLL_TRY_ASSIGN(sys::UniqueFd target, sys::open_beneath(to, name, O_RDONLY | O_DIRECTORY));
      return copy(source, target, depth + 1);
    }
    if (!S_ISREG(info.st_mode))
      return make_error(Errc::failed_precondition, "neither file nor directory");
    if (std::size_t(info.st_size) > kMaxKernelBytes - bytes_)
      return make_error(Errc::failed_precondition, "the runners are too large");
    bytes_ += std::size_t(info.st_size);
    ATOLL_TRY_ASSIGN(sys::UniqueFd source, sys::open_beneath(from, name, O_RDONLY));
    ATOLL_TRY_ASSIGN(sys::UniqueFd target,
                     sys::open_beneath(to, name, O_RDWR | O_CREAT | O_EXCL, 0600));
    ATOLL_TRY(sys::copy_content(source, target));
    return sys::set_mode(target, (info.st_mode & 0111) != 0 ? 0555 : 0444);
  }

  std::size_t bytes_ = 0;
  std::size_t entries_ = 0;
};

// Kept programs of other versions are put here when a sandbox from memory needs them.
Result<void> mount_other_programs() {
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("tmpfs"));
  ATOLL_TRY(context.set_options({{"source", "atoll"}, {"mode", "0700"}}));
  ATOLL_TRY_ASSIGN(sys::DetachedMount others, context.mount(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  ATOLL_TRY_ASSIGN(sys::UniqueFd target,
                   sys::open_trusted(std::string(kStage) + "/" + kStagePrograms,
                                     O_PATH | O_DIRECTORY | O_NOFOLLOW));
  return others.attach(target);
}

}  // namespace

Result<void> copy_agent(const sys::UniqueFd& agent, const sys::UniqueFd& into) {
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(agent));
  if (!S_ISREG(info.st_mode) || info.st_size == 0 || std::size_t(info.st_size) > kMaxAgentBytes)
    return make_error(Errc::failed_precondition, "it is not a program");
  ATOLL_TRY_ASSIGN(sys::UniqueFd to,
                   sys::open_beneath(into, kAgentName, O_RDWR | O_CREAT | O_EXCL, 0600));
  ATOLL_TRY(sys::copy_content(agent, to));
  return sys::set_mode(to, 0555);
}

Result<void> copy_kernels(const sys::UniqueFd& tree, const sys::UniqueFd& into) {
  return TreeCopy().copy(tree, into, 1);
}

Result<void> build_stage(const std::string& agent_path, const std::string& kernels_path) {
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("tmpfs"));
  ATOLL_TRY(context.set_options({{"source", "atoll"}, {"mode", "0755"}, {"nr_inodes", "2048"}}));
  ATOLL_TRY_ASSIGN(sys::DetachedMount stage, context.mount(MOUNT_ATTR_NOSUID));
  ATOLL_TRY(fill_dev(stage.fd()));
  for (const char* name : {kStageRoot, kStageLower, kStageDisk, kStageLayers, kStagePrograms,
                           kStageAgent, kKernelsName}) {
    ATOLL_TRY(sys::make_dir(stage.fd(), name, 0755, sys::IfExists::fail));
  }
  auto copied = [&]() -> Result<void> {
    ATOLL_TRY_ASSIGN(sys::UniqueFd agent, sys::open_trusted(agent_path, O_RDONLY));
    ATOLL_TRY_ASSIGN(sys::UniqueFd into,
                     sys::open_beneath(stage.fd(), kStageAgent, O_RDONLY | O_DIRECTORY));
    return copy_agent(agent, into);
  }();
  if (!copied) return std::move(copied).error().with("agent " + agent_path);
  if (!kernels_path.empty()) {
    copied = [&]() -> Result<void> {
      ATOLL_TRY_ASSIGN(sys::UniqueFd tree, sys::open_trusted(kernels_path, O_RDONLY | O_DIRECTORY));
      ATOLL_TRY_ASSIGN(sys::UniqueFd into,
                       sys::open_beneath(stage.fd(), kKernelsName, O_RDONLY | O_DIRECTORY));
      return copy_kernels(tree, into);
    }();
  }
  if (!copied) return std::move(copied).error().with("kernels");
  // Read-only before anybody can see it. In a sandbox's mount namespace the kernel locks this
  // attribute.
  ATOLL_TRY(stage.restrict_to(MOUNT_ATTR_RDONLY));
  ATOLL_TRY_ASSIGN(sys::UniqueFd target,
                   sys::open_trusted(kStage, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  ATOLL_TRY(stage.attach(target));
  return mount_other_programs();
}

}  // namespace atl::jail
