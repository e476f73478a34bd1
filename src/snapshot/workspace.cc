#include "snapshot/workspace.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/log.h"
#include "snapshot/embed.h"
#include "sys/files.h"
#include "sys/self.h"

namespace atl::snapshot {
namespace {

constexpr const char* kRun = "/run";
constexpr const char* kStore = "/run/atoll";  // root's; made by the warden
constexpr const char* kKdat = "criu.kdat";
constexpr const char* kPreload = "preload.so";
constexpr const char* kTar = "tar";  // see inside/helper.c
constexpr std::string_view kPrefix = "criu-kdat-";
constexpr std::size_t kMaxKdat = 64 << 10;

std::string knowledge_name() {
  auto id = sys::read_trusted("/proc/sys/kernel/random/boot_id", 64);
  if (!id) return {};
  return std::string(kPrefix) + id->substr(0, id->find('\n'));
}

}  // namespace

std::string Workspace::path(std::string_view name) {
  return std::string(kRun) + "/" + std::string(name);
}
std::string preload_path() { return Workspace::path(kPreload); }
std::string program_path() {
  return std::string("PATH=") + kRun + ":/usr/sbin:/usr/bin:/sbin:/bin";
}

Result<Workspace> Workspace::make() {
  // Through the old /run: after this function it cannot be seen any more.
  auto store = sys::open_trusted(kStore, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  struct stat info{};
  if (store && (::fstat(store->get(), &info) != 0 || info.st_uid != 0 || (info.st_mode & 022) != 0))
    store = make_error(Errc::permission_denied, "not root's alone");

  ATOLL_TRY(sys::unshare(CLONE_NEWNS));
  ATOLL_TRY(sys::make_all_private());
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("tmpfs"));
  ATOLL_TRY(context.set_options(
      {{"source", "atoll"}, {"mode", "0755"}, {"size", "64m"}, {"nr_inodes", "4096"}}));
  ATOLL_TRY_ASSIGN(sys::DetachedMount mount, context.mount(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  ATOLL_TRY_ASSIGN(sys::UniqueFd target, sys::open_trusted(kRun, O_PATH | O_DIRECTORY));
  ATOLL_TRY(mount.attach(target));
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_trusted(kRun, O_RDONLY | O_DIRECTORY));
  Workspace space(std::move(dir));
  ATOLL_TRY(space.add_file(kPreload, preload_library(), 0755));
  ATOLL_TRY(space.add_file(kTar, helper_program(), 0755));
  space.knowledge_ = knowledge_name();
  if (store && !space.knowledge_.empty()) {
    space.store_ = std::move(*store);
    auto known = sys::read_beneath(space.store_, space.knowledge_, kMaxKdat);
    if (known) {
      ATOLL_TRY(space.add_file(kKdat, *known, 0644));
      space.knowledge_.clear();
    }
  }
  return space;
}

Result<std::string> Workspace::add_file(const std::string& name, std::string_view content,
                                        mode_t mode) {
  ATOLL_TRY(sys::create_file(dir_, name, content, mode, 0));
  return path(name);
}

Result<std::string> Workspace::add_dir(const std::string& name, mode_t mode) {
  ATOLL_TRY(sys::make_dir(dir_, name, mode, sys::IfExists::fail));
  return path(name);
}

Result<std::string> Workspace::attach(const std::string& name, const sys::DetachedMount& mount) {
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(mount.fd()));
  if (S_ISDIR(info.st_mode)) {
    ATOLL_TRY(add_dir(name, 0755));
  } else {
    ATOLL_TRY(add_file(name, "", 0644));
  }
  ATOLL_TRY_ASSIGN(sys::UniqueFd target, sys::open_beneath(dir_, name, O_PATH));
  ATOLL_TRY(mount.attach(target));
  return path(name);
}

void Workspace::keep_knowledge() {
  if (!store_ || knowledge_.empty()) return;
  auto kept = [&]() -> Result<void> {
    ATOLL_TRY_ASSIGN(std::string known, sys::read_beneath(dir_, kKdat, kMaxKdat));
    ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(store_));
    for (const std::string& name : names) {
      if (name.starts_with(kPrefix) && name != knowledge_) {
        ATOLL_TRY(sys::remove_file(store_, name));
      }
    }
    auto published = sys::publish_file(store_, knowledge_, known, 0600);
    if (!published && published.error().sys_errno != EEXIST) return published;
    return {};
  }();
  if (!kept) log::debug("CRIU's knowledge is not kept", {{"error", kept.error().message}});
  knowledge_.clear();
}

}  // namespace atl::snapshot
