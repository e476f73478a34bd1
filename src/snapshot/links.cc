#include <fcntl.h>
#include <sys/stat.h>

#include "base/log.h"
#include "snapshot/snapshot.h"
#include "sys/files.h"

namespace atl::snapshot {

Result<void> Links::add(const sys::UniqueFd& file, sys::UniqueFd directory, std::string name) {
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(file));
  auto linked = sys::link_as(file, directory, name);
  if (!linked) return std::move(linked).error();
  made_.push_back({std::move(directory), std::move(name), std::uint64_t(info.st_ino)});
  return {};
}

Links::~Links() { remove(); }

void Links::remove() {
  for (const Made& made : made_) {
    auto removed = [&]() -> Result<void> {
      ATOLL_TRY_ASSIGN(struct stat info, sys::stat_at(made.directory, made.name));
      if (info.st_ino != made.inode) return make_error(Errc::aborted, "it is another file now");
      return sys::remove_file(made.directory, made.name);
    }();
    if (!removed) log::warn("a link stays in the sandbox", {{"error", removed.error().message}});
  }
  made_.clear();
}

}  // namespace atl::snapshot
