#include "runtime/jail/compact.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <set>
#include <thread>

#include "runtime/jail/disk.h"
#include "runtime/jail/disk_copy.h"
#include "runtime/jail/ext4.h"
#include "runtime/jail/launch.h"
#include "runtime/jail/tree_copy.h"
#include "sys/attributes.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

constexpr const char* kOpaque = "trusted.overlay.opaque";
constexpr const char* kRedirect = "trusted.overlay.redirect";
constexpr const char* kMetacopy = "trusted.overlay.metacopy";
constexpr std::size_t kMaxPath = 64 << 10;
constexpr std::chrono::seconds kUnmountDeadline{30};

struct Source {
  std::size_t layer = 0;
  std::string path;  // below the layer's root; empty: the root
};

// A directory as the kernel sees it through the layers.
struct Merged {
  std::vector<Source> sources;  // the nearest first
  bool opaque = false;          // nothing of the template shows through
  std::string template_path;    // else: which of its directories merges too, if it is there
};

// What is found under a name. No sources and no whiteout: nothing.
struct Found {
  Merged merged;  // a directory, or the one other file that counts
  bool directory = false;
  bool whiteout = false;
  bool redirected = false;  // to a path from the root on
};

std::string join(const std::string& dir, std::string_view name) {
  return dir.empty() ? std::string(name) : dir + "/" + std::string(name);
}

class Merger {
 public:
  Merger(const std::vector<sys::UniqueFd>& layers, const sys::UniqueFd& into)
      : layers_(layers), into_(into), copy_(layers, into) {
    for (std::size_t i = 0; i < layers_.size(); ++i) root_.sources.push_back({i, ""});
  }

  Result<void> run() { return merge(root_, ""); }

 private:
  Result<void> merge(const Merged& dir, const std::string& target) {
    if (target.size() > kMaxPath)
      return make_error(Errc::failed_precondition, "directories are too deep");
    std::set<std::string> names;
    for (const Source& source : dir.sources) {
      ATOLL_TRY_ASSIGN(sys::UniqueFd fd, sys::open_beneath(layers_[source.layer], source.path,
                                                           O_RDONLY | O_DIRECTORY));
      ATOLL_TRY_ASSIGN(std::vector<std::string> some, sys::list_dir(fd));
      names.insert(some.begin(), some.end());
    }
    for (const std::string& name : names) {
      auto added = add(dir, name, join(target, name));
      if (!added) return std::move(added).error().with(name);
    }
    const Source& nearest = dir.sources.front();
    return copy_.directory(nearest.layer, nearest.path, target);
  }

  Result<void> add(const Merged& parent, const std::string& name, const std::string& target) {
    ATOLL_TRY_ASSIGN(Found found, look_up(parent, name));
    const auto [dir_path, last] = split(target);
    ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_beneath(into_, dir_path, O_RDONLY | O_DIRECTORY));
    if (found.whiteout && !parent.opaque) return sys::make_node(dir, name, S_IFCHR, 0);
    if (found.merged.sources.empty()) return {};
    const Source& nearest = found.merged.sources.front();
    if (!found.directory) {
      ATOLL_TRY_ASSIGN(const std::string elsewhere, note(nearest, kMetacopy));
      if (!elsewhere.empty())
        return make_error(Errc::failed_precondition, "its content is in another layer");
      return copy_.file(nearest.layer, nearest.path, target);
    }
    ATOLL_TRY(sys::make_dir(dir, name, 0700, sys::IfExists::fail));
    // Below a directory that hides the template only a redirect leads to it.
    const bool hidden = parent.opaque && !found.redirected;
    if (!hidden) {
      ATOLL_TRY_ASSIGN(sys::UniqueFd made, sys::open_beneath(dir, name, O_RDONLY | O_DIRECTORY));
      if (found.merged.opaque) {
        ATOLL_TRY(sys::set_attribute(made, kOpaque, "y"));
      } else if (parent.opaque || found.merged.template_path != join(parent.template_path, name)) {
        ATOLL_TRY(sys::set_attribute(made, kRedirect, "/" + found.merged.template_path));
      }
    }
    found.merged.opaque = found.merged.opaque || hidden;
    return merge(found.merged, target);
  }

  // As overlayfs does it: layer by layer, each redirect telling where to look in those below, until
  // something ends the search before it reaches the template.
  Result<Found> look_up(const Merged& parent, const std::string& name) {
    Found found;
    std::string wanted = name;  // below the parent's directories or, if redirected, below the roots
    std::size_t next = 0;       // layer
    bool stop = false;
    while (!stop) {
      const std::vector<Source>& bases = found.redirected ? root_.sources : parent.sources;
      const auto base = std::find_if(bases.begin(), bases.end(),
                                     [&](const Source& source) { return source.layer >= next; });
      if (base == bases.end()) break;
      next = base->layer + 1;
      ATOLL_TRY_ASSIGN(stop, look_in(*base, wanted, found));
    }
    found.merged.opaque = stop;
    found.merged.template_path = found.redirected ? wanted : join(parent.template_path, wanted);
    return found;
  }

  // Follows `wanted` down one layer. True: no layer below counts.
  Result<bool> look_in(const Source& base, std::string& wanted, Found& found) {
    const std::string path_here = wanted;
    Source at{base.layer, base.path};
    bool stop = false;
    for (std::size_t begin = 0; begin < path_here.size();) {
      const std::size_t end = std::min(path_here.find('/', begin), path_here.size());
      const bool last = end == path_here.size();
      at.path = join(at.path, std::string_view(path_here).substr(begin, end - begin));
      ATOLL_TRY_ASSIGN(const std::optional<struct stat> info, stat_of(at));
      if (!info) return stop;
      if (S_ISCHR(info->st_mode) && info->st_rdev == 0) {
        found.whiteout = found.merged.sources.empty();
        return true;
      }
      if (!S_ISDIR(info->st_mode)) {
        if (last && found.merged.sources.empty()) found.merged.sources.push_back(at);
        return true;
      }
      ATOLL_TRY_ASSIGN(const std::string opaque, note(at, kOpaque));
      if (opaque == "y") {
        stop = true;
      } else {
        ATOLL_TRY_ASSIGN(const std::string redirect, note(at, kRedirect));
        // What comes after this part is the same in `wanted`, what is before may be another.
        const std::string tail = path_here.substr(end);
        if (redirect.starts_with('/')) {
          wanted = redirect.substr(1) + tail;
          found.redirected = true;
          stop = false;  // it leads out of what was opaque on the way
        } else if (!redirect.empty()) {
          const std::size_t part = wanted.size() - tail.size();
          const std::size_t slash = wanted.rfind('/', part - 1);
          wanted = wanted.substr(0, slash == std::string::npos ? 0 : slash + 1) + redirect + tail;
        }
      }
      if (last) {
        found.directory = true;
        found.merged.sources.push_back(at);
      }
      begin = end + 1;
    }
    return stop;
  }

  Result<std::optional<struct stat>> stat_of(const Source& source) {
    auto opened = sys::open_beneath(layers_[source.layer], source.path, O_PATH | O_NOFOLLOW);
    if (!opened && opened.error().sys_errno == ENOENT) return std::optional<struct stat>();
    if (!opened) return std::move(opened).error();
    ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(*opened));
    return std::optional<struct stat>(info);
  }

  // What overlayfs has noted of a file; empty if it has not.
  Result<std::string> note(const Source& source, const char* name) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd file,
                     sys::open_beneath(layers_[source.layer], source.path, O_PATH | O_NOFOLLOW));
    ATOLL_TRY_ASSIGN(std::optional<std::string> value, sys::get_attribute(file, name));
    return std::move(value).value_or("");
  }

  const std::vector<sys::UniqueFd>& layers_;
  const sys::UniqueFd& into_;
  TreeCopy copy_;
  Merged root_;
};

// Answers when the filesystem on the image is gone, and with it the last write to it. `image` is
// given up: it holds the lock that tells.
Result<sys::UniqueFd> await_unmounted(sys::UniqueFd image) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd again, sys::open_trusted(sys::path_of(image), O_RDWR));
  image.reset();
  const auto deadline = std::chrono::steady_clock::now() + kUnmountDeadline;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool free, sys::try_lock(again));
    if (free) return again;
    if (std::chrono::steady_clock::now() > deadline)
      return make_error(Errc::deadline_exceeded, "a new disk is not unmounted");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

Result<void> merge_layers(const std::vector<sys::UniqueFd>& layers, const sys::UniqueFd& into) {
  return Merger(layers, into).run();
}

Result<bool> compact(const SnapshotStore& store, Layers& layers, const runtime::SnapshotId& id,
                     std::size_t longest) {
  ATOLL_TRY_ASSIGN(const std::vector<LayerRef> chain, store.chain_of(id));
  if (chain.size() <= longest || chain.front().flat) return false;
  ATOLL_TRY_ASSIGN(const Mark mark, store.mark_of(id));
  ATOLL_TRY_ASSIGN(sys::UniqueFd directory, store.directory(id));
  ATOLL_TRY_ASSIGN(OpenLayers open, layers.open(store, chain, mark.files_slot()));
  std::vector<sys::UniqueFd> roots;
  std::uint64_t size = 0;  // as all of them together: enough for every file and every inode
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd root,
                     sys::open_beneath(open.lowers[i].fd(), "", O_RDONLY | O_DIRECTORY));
    roots.push_back(std::move(root));
    ATOLL_TRY_ASSIGN(sys::UniqueFd dir, store.directory(chain[i].snapshot));
    ATOLL_TRY_ASSIGN(struct stat info,
                     sys::stat_at(dir, chain[i].flat ? kFlatImageName : kImageName));
    size += std::uint64_t(info.st_size);
    used += std::uint64_t(info.st_blocks) * 512;
  }
  ATOLL_TRY(check_space(directory, used));
  Disk disk;
  ATOLL_TRY_ASSIGN(disk.image, make_image(directory, size));
  ATOLL_TRY(sys::try_lock(disk.image));
  ATOLL_TRY(mount_disk(disk, disk_mount(), Content::empty));
  {
    ATOLL_TRY_ASSIGN(sys::UniqueFd upper,
                     sys::open_beneath(disk.mount.fd(), "upper", O_RDONLY | O_DIRECTORY));
    ATOLL_TRY(merge_layers(roots, upper));
  }
  disk.mount = sys::DetachedMount();
  ATOLL_TRY_ASSIGN(sys::UniqueFd image, await_unmounted(std::move(disk.image)));
  ATOLL_TRY_ASSIGN(const Uuid uuid, new_uuid());
  ATOLL_TRY(make_distinct(image, uuid));
  ATOLL_TRY(sys::set_mode(image, 0400));
  ATOLL_TRY(sys::flush_to_disk(image));
  auto linked = sys::link_as(image, directory, kFlatImageName);
  if (!linked && linked.error().sys_errno == EEXIST) return true;  // somebody else did the same
  ATOLL_TRY(linked);
  ATOLL_TRY(sys::flush_to_disk(directory));
  return true;
}

}  // namespace atl::jail
