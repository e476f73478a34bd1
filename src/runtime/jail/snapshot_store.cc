#include "runtime/jail/snapshot_store.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "runtime/jail/disk_copy.h"
#include "runtime/jail/launch.h"
#include "runtime/jail/protocol.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

using runtime::SnapshotId;

constexpr int kMaxMemoryDepth = 4;  // memory/images/FILE

Error missing(const SnapshotId& id) { return make_error(Errc::not_found, "no snapshot " + id); }

Result<sys::UniqueFd> own_dir(const sys::UniqueFd& parent, const std::string& name) {
  ATOLL_TRY(sys::make_dir(parent, name, 0700, sys::IfExists::keep));
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_beneath(parent, name, O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(dir));
  if (info.st_uid != 0 || (info.st_mode & 077) != 0)
    return make_error(Errc::failed_precondition, name + " must belong to root and nobody else");
  return dir;
}

// What the files below a directory occupy; what goes away meanwhile does not count.
std::uint64_t occupied_below(const sys::UniqueFd& parent, const std::string& name, int depth) {
  auto dir = sys::open_beneath(parent, name, O_RDONLY | O_DIRECTORY);
  auto names = dir ? sys::list_dir(*dir) : Result<std::vector<std::string>>(dir.error());
  if (!names) return 0;
  std::uint64_t sum = 0;
  for (const std::string& entry : *names) {
    auto info = sys::stat_at(*dir, entry);
    if (!info) continue;
    sum += std::uint64_t(info->st_blocks) * 512;
    if (S_ISDIR(info->st_mode) && depth < kMaxMemoryDepth)
      sum += occupied_below(*dir, entry, depth + 1);
  }
  return sum;
}

bool uses(const UsedLayers& used, const SnapshotId& id) {
  return used.contains({id, false}) || used.contains({id, true});
}

}  // namespace

Result<UsedLayers> layers_of_sandboxes(const sys::UniqueFd& sandboxes) {
  UsedLayers used;
  ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(sandboxes));
  for (const std::string& name : names) {
    auto directory = sys::open_beneath(sandboxes, name, O_RDONLY | O_DIRECTORY);
    if (!directory &&
        (directory.error().sys_errno == ENOENT || directory.error().sys_errno == ENOTDIR))
      continue;
    if (!directory) return std::move(directory).error();
    auto mark = read_mark(*directory);
    if (!mark) return std::move(mark).error().with("sandbox " + name);
    if (*mark) used.insert((*mark)->layers.begin(), (*mark)->layers.end());
  }
  return used;
}

Result<SnapshotStore> SnapshotStore::open(const sys::UniqueFd& home, const std::string& instance) {
  ATOLL_TRY(wire::validate_id(instance, "instance"));
  ATOLL_TRY_ASSIGN(sys::UniqueFd all, own_dir(home, "snapshots"));
  return SnapshotStore(std::move(all), instance);
}

Result<sys::UniqueFd> SnapshotStore::mine() const {
  return sys::open_beneath(all_, instance_, O_RDONLY | O_DIRECTORY);
}

Result<std::vector<std::string>> SnapshotStore::names() const {
  auto dir = mine();
  if (!dir && dir.error().sys_errno == ENOENT) return std::vector<std::string>();
  if (!dir) return std::move(dir).error();
  ATOLL_TRY_ASSIGN(std::vector<std::string> all, sys::list_dir(*dir));
  std::erase_if(all, [](const std::string& name) {
    return !wire::validate_snapshot_id(name, "snapshot").ok();
  });
  std::sort(all.begin(), all.end());
  return all;
}

Result<sys::UniqueFd> SnapshotStore::begin(const SnapshotId& id) const {
  ATOLL_TRY(wire::validate_snapshot_id(id, "snapshot"));
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, own_dir(all_, instance_));
  auto made = sys::make_dir(dir, id, 0700, sys::IfExists::fail);
  if (!made && made.error().sys_errno == EEXIST)
    return make_error(Errc::already_exists, "snapshot " + id + " exists");
  if (!made) return std::move(made).error();
  return sys::open_beneath(dir, id, O_RDONLY | O_DIRECTORY);
}

Result<void> SnapshotStore::publish(const SnapshotId& id, Mark mark) const {
  ATOLL_TRY(wire::validate_snapshot_id(id, "snapshot"));
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, mine());
  ATOLL_TRY_ASSIGN(sys::UniqueFd directory, sys::open_beneath(dir, id, O_RDONLY | O_DIRECTORY));
  mark.layers = shortened(std::move(mark.layers));
  if (mark.layers.size() >= kMaxLayers)
    return make_error(Errc::failed_precondition, "too many snapshots lie over each other");
  ATOLL_TRY(sys::flush_to_disk(directory));
  ATOLL_TRY(write_mark(directory, mark));
  ATOLL_TRY(flush_copy(directory, kMarkName));
  ATOLL_TRY(sys::flush_to_disk(directory));
  ATOLL_TRY(sys::flush_to_disk(dir));
  return sys::flush_to_disk(all_);
}

Result<sys::UniqueFd> SnapshotStore::directory(const SnapshotId& id) const {
  ATOLL_TRY(wire::validate_snapshot_id(id, "snapshot"));
  auto directory = sys::open_beneath(all_, instance_ + "/" + id, O_RDONLY | O_DIRECTORY);
  if (!directory && directory.error().sys_errno == ENOENT) return missing(id);
  return directory;
}

Result<Mark> SnapshotStore::mark_of(const SnapshotId& id) const {
  ATOLL_TRY_ASSIGN(sys::UniqueFd own, directory(id));
  auto mark = read_mark(own);
  if (!mark) return std::move(mark).error().with("snapshot " + id);
  if (!*mark) return missing(id);
  return std::move(**mark);
}

Result<std::vector<StoredSnapshot>> SnapshotStore::list() const {
  ATOLL_TRY_ASSIGN(const std::vector<std::string> all, names());
  std::vector<StoredSnapshot> out;
  for (const std::string& name : all) {
    StoredSnapshot found{name, false, {}, 0, 0};
    auto own = directory(name);
    if (!own && own.error().code == Errc::not_found) continue;  // removed meanwhile
    if (!own) return std::move(own).error();
    auto mark = read_mark(*own);
    if (mark && *mark) {
      found.whole = true;
      found.mark = std::move(**mark);
    }
    found.memory_bytes = occupied_below(*own, kMemoryName, 1);
    for (const char* image : {kImageName, kFlatImageName}) {
      ATOLL_TRY_ASSIGN(const std::uint64_t bytes, occupied(*own, image));
      found.disk_bytes += bytes;
    }
    out.push_back(std::move(found));
  }
  return out;
}

bool SnapshotStore::has_flat(const SnapshotId& id) const {
  return sys::stat_at(all_, instance_ + "/" + id + "/" + kFlatImageName).ok();
}

std::vector<LayerRef> SnapshotStore::shortened(std::vector<LayerRef> layers) const {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].flat || !has_flat(layers[i].snapshot)) continue;
    layers[i].flat = true;
    layers.resize(i + 1);
    break;
  }
  return layers;
}

Result<std::vector<LayerRef>> SnapshotStore::chain_of(const SnapshotId& id) const {
  ATOLL_TRY_ASSIGN(Mark mark, mark_of(id));
  std::vector<LayerRef> chain = {{id, false}};
  chain.insert(chain.end(), mark.layers.begin(), mark.layers.end());
  return shortened(std::move(chain));
}

Result<UsedLayers> SnapshotStore::layers_of_snapshots(const SnapshotId& except) const {
  UsedLayers used;
  ATOLL_TRY_ASSIGN(const std::vector<std::string> all, names());
  for (const std::string& name : all) {
    if (name == except) continue;
    auto own = directory(name);
    if (!own && own.error().code == Errc::not_found) continue;
    if (!own) return std::move(own).error();
    auto mark = read_mark(*own);
    if (!mark) return std::move(mark).error().with("snapshot " + name);
    if (*mark) used.insert((*mark)->layers.begin(), (*mark)->layers.end());
  }
  return used;
}

Result<void> SnapshotStore::remove(const SnapshotId& id, const UsedLayers& used) const {
  ATOLL_TRY_ASSIGN(sys::UniqueFd own, directory(id));
  if (uses(used, id))
    return make_error(Errc::failed_precondition, "a sandbox lies over snapshot " + id);
  ATOLL_TRY_ASSIGN(const UsedLayers below, layers_of_snapshots(id));
  if (uses(below, id))
    return make_error(Errc::failed_precondition, "another snapshot lies over snapshot " + id);
  ATOLL_TRY(remove_mark(own));
  own.reset();
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, mine());
  ATOLL_TRY(sys::remove_tree(dir, id));
  (void)sys::remove_dir(all_, instance_);  // only if it was the last one
  return {};
}

Result<bool> SnapshotStore::let_go(const SnapshotId& id, const UsedLayers& used) const {
  ATOLL_TRY_ASSIGN(Mark mark, mark_of(id));
  ATOLL_TRY_ASSIGN(sys::UniqueFd own, directory(id));
  if (!has_flat(id) || used.contains({id, false})) return false;
  ATOLL_TRY_ASSIGN(const UsedLayers below, layers_of_snapshots(id));
  if (below.contains({id, false})) return false;
  if (!mark.layers.empty()) {
    mark.layers.clear();
    ATOLL_TRY(replace_mark(own, mark));
    ATOLL_TRY(sys::flush_to_disk(own));
  }
  ATOLL_TRY(sys::remove_file(own, kImageName));
  return true;
}

}  // namespace atl::jail
