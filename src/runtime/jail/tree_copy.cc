#include "runtime/jail/tree_copy.h"

#include <fcntl.h>

#include <cerrno>

#include "sys/attributes.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

// What overlayfs notes about an upper layer: handles of what lies below, numbers of links. It means
// nothing in another filesystem.
constexpr std::string_view kOverlayNotes = "trusted.overlay.";

}  // namespace

std::pair<std::string, std::string> split(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

Result<void> TreeCopy::attributes(const sys::UniqueFd& original, const std::string& target) {
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(original));
  ATOLL_TRY_ASSIGN(sys::UniqueFd made, sys::open_beneath(to_, target, O_PATH | O_NOFOLLOW));
  ATOLL_TRY(sys::give_owner(made, info));
  ATOLL_TRY_ASSIGN(const std::vector<std::string> names, sys::list_attributes(original));
  for (const std::string& name : names) {
    if (name.starts_with(kOverlayNotes)) continue;
    ATOLL_TRY_ASSIGN(const std::optional<std::string> value, sys::get_attribute(original, name));
    if (!value) continue;
    ATOLL_TRY(sys::set_attribute(made, name, *value));
  }
  return sys::give_mode_and_times(made, info);
}

Result<void> TreeCopy::create(const sys::UniqueFd& original, const std::string& source,
                              std::size_t tree, const std::string& target) {
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(original));
  const auto [parent, name] = split(target);
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_beneath(to_, parent, O_RDONLY | O_DIRECTORY));
  if (S_ISREG(info.st_mode)) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd from, sys::open_beneath(from_[tree], source, O_RDONLY));
    ATOLL_TRY_ASSIGN(sys::UniqueFd to,
                     sys::open_beneath(dir, name, O_RDWR | O_CREAT | O_EXCL, 0600));
    return sys::copy_sparse(from, to);
  }
  if (S_ISLNK(info.st_mode)) {
    ATOLL_TRY_ASSIGN(const std::string link, sys::read_link(original));
    return sys::make_symlink(dir, name, link);
  }
  return sys::make_node(dir, name, info.st_mode, info.st_rdev);
}

Result<void> TreeCopy::file(std::size_t tree, const std::string& source,
                            const std::string& target) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd original,
                   sys::open_beneath(from_[tree], source, O_PATH | O_NOFOLLOW));
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(original));
  if (info.st_nlink > 1) {
    const auto [known, fresh] = linked_.try_emplace({tree, info.st_ino}, target);
    if (!fresh) {
      const auto [parent, name] = split(target);
      ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_beneath(to_, parent, O_RDONLY | O_DIRECTORY));
      ATOLL_TRY_ASSIGN(sys::UniqueFd first,
                       sys::open_beneath(to_, known->second, O_PATH | O_NOFOLLOW));
      return sys::link_as(first, dir, name);
    }
  }
  ATOLL_TRY(create(original, source, tree, target));
  return attributes(original, target);
}

Result<void> TreeCopy::directory(std::size_t tree, const std::string& source,
                                 const std::string& target) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd original,
                   sys::open_beneath(from_[tree], source, O_PATH | O_NOFOLLOW));
  return attributes(original, target);
}

}  // namespace atl::jail
