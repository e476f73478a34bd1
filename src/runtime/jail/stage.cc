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

Result<void> copy_agent(const sys::UniqueFd& root, const std::string& agent_path) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd from, sys::open_trusted(agent_path, O_RDONLY));
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(from));
  if (!S_ISREG(info.st_mode) || info.st_size == 0 || std::size_t(info.st_size) > kMaxAgentBytes) {
    return make_error(Errc::failed_precondition, agent_path + " is not a program");
  }
  ATOLL_TRY(sys::make_dir(root, "agent", 0755, sys::IfExists::fail));
  ATOLL_TRY_ASSIGN(sys::UniqueFd to,
                   sys::open_beneath(root, "agent/atoll-agent", O_RDWR | O_CREAT | O_EXCL, 0600));
  ATOLL_TRY(sys::copy_content(from, to));
  return sys::set_mode(to, 0555);
}

}  // namespace

Result<void> build_stage(const std::string& agent_path) {
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("tmpfs"));
  ATOLL_TRY(context.set_options({{"source", "atoll"}, {"mode", "0755"}, {"nr_inodes", "64"}}));
  ATOLL_TRY_ASSIGN(sys::DetachedMount stage, context.mount(MOUNT_ATTR_NOSUID));
  ATOLL_TRY(fill_dev(stage.fd()));
  for (const char* name : {kStageRoot, kStageLower, kStageDisk}) {
    ATOLL_TRY(sys::make_dir(stage.fd(), name, 0755, sys::IfExists::fail));
  }
  auto copied = copy_agent(stage.fd(), agent_path);
  if (!copied) return std::move(copied).error().with("agent");
  // Read-only before anybody can see it. In a sandbox's mount namespace the kernel locks this
  // attribute.
  ATOLL_TRY(stage.restrict_to(MOUNT_ATTR_RDONLY));
  ATOLL_TRY_ASSIGN(sys::UniqueFd target,
                   sys::open_trusted(kStage, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  return stage.attach(target);
}

}  // namespace atl::jail
