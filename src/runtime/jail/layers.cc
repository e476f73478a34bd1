#include "runtime/jail/layers.h"

#include <fcntl.h>

#include <cerrno>

#include "base/log.h"
#include "runtime/jail/launch.h"
#include "runtime/jail/plan.h"
#include "runtime/jail/ranges.h"
#include "sys/files.h"
#include "sys/loop.h"
#include "sys/namespaces.h"

namespace atl::jail {

namespace {

void report(const Result<void>& gone) {
  if (!gone) log::error("cannot unmount a layer", {{"error", gone.error().message}});
}

Result<std::shared_ptr<const LayerPlace>> make_place(const std::string& path) {
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("tmpfs"));
  ATOLL_TRY(context.set_options({{"source", "atoll"}, {"mode", "0700"}}));
  ATOLL_TRY_ASSIGN(sys::DetachedMount mount,
                   context.mount(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  ATOLL_TRY_ASSIGN(sys::UniqueFd target, sys::open_trusted(path, O_PATH | O_DIRECTORY));
  ATOLL_TRY(mount.attach(target));
  return std::make_shared<const LayerPlace>(std::move(mount));
}

}  // namespace

LayerPlace::~LayerPlace() { report(sys::unmount_lazily(mount_)); }

SharedLayer::~SharedLayer() {
  upper_.reset();
  report(sys::unmount_lazily(mount_));
  mount_ = sys::DetachedMount();
  report(sys::remove_dir(place_->fd(), name_));
}

Result<std::shared_ptr<const SharedLayer>> Layers::mounted(const SnapshotStore& store,
                                                           const LayerRef& layer) {
  std::erase_if(mounted_, [](const auto& entry) { return entry.second.expired(); });
  if (const auto known = mounted_.find(layer); known != mounted_.end()) return known->second.lock();
  if (!place_) {
    ATOLL_TRY_ASSIGN(place_, make_place(path_));
  }
  ATOLL_TRY_ASSIGN(sys::UniqueFd directory, store.directory(layer.snapshot));
  auto image = sys::open_beneath(directory, layer.flat ? kFlatImageName : kImageName, O_RDONLY);
  if (!image && image.error().sys_errno == ENOENT)
    return make_error(Errc::data_loss, "the disk of snapshot " + layer.snapshot + " is missing");
  if (!image) return std::move(image).error();
  auto made = [&]() -> Result<std::shared_ptr<const SharedLayer>> {
    ATOLL_TRY_ASSIGN(sys::LoopDevice device,
                     sys::LoopDevice::attach(*image, sys::LoopDevice::Access::read_only));
    ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("ext4"));
    ATOLL_TRY(context.set("source", device.path()));
    ATOLL_TRY(context.set_flag("ro"));
    ATOLL_TRY_ASSIGN(sys::DetachedMount mount, context.mount(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV));
    ATOLL_TRY_ASSIGN(sys::UniqueFd upper,
                     sys::open_beneath(mount.fd(), "upper", O_PATH | O_DIRECTORY));
    // Older kernels clone only what is attached.
    const std::string name = layer.snapshot + (layer.flat ? ".flat" : "");
    ATOLL_TRY(sys::make_dir(place_->fd(), name, 0700, sys::IfExists::keep));
    ATOLL_TRY_ASSIGN(sys::UniqueFd target,
                     sys::open_beneath(place_->fd(), name, O_PATH | O_DIRECTORY));
    ATOLL_TRY(mount.attach(target));
    return std::make_shared<const SharedLayer>(place_, name, std::move(mount), std::move(upper));
  }();
  if (!made) return std::move(made).error().with("snapshot " + layer.snapshot);
  mounted_[layer] = *made;
  return made;
}

Result<OpenLayers> Layers::open(const SnapshotStore& store, const std::vector<LayerRef>& layers,
                                std::uint32_t slot) {
  OpenLayers out;
  std::map<std::uint32_t, sys::UniqueFd> shifts;  // by the slot that the files carry
  for (const LayerRef& layer : layers) {
    ATOLL_TRY_ASSIGN(const Mark mark, store.mark_of(layer.snapshot));
    ATOLL_TRY_ASSIGN(auto shared, mounted(store, layer));
    ATOLL_TRY_ASSIGN(sys::DetachedMount lower, sys::DetachedMount::clone_tree(shared->upper()));
    ATOLL_TRY(lower.restrict_to(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV));
    const std::uint32_t from = mark.files_slot();
    if (from != slot) {
      if (!shifts.contains(from)) {
        const uid_t owner = Ranges::first_id(slot);
        ATOLL_TRY_ASSIGN(shifts[from], sys::new_user_namespace(
                                           {Ranges::first_id(from), owner, kIdsPerSandbox}, owner));
      }
      ATOLL_TRY(lower.idmap(shifts[from]));
    }
    out.lowers.push_back(std::move(lower));
    out.shared.push_back(std::move(shared));
  }
  return out;
}

Result<void> prepare_upper(const sys::UniqueFd& upper, const sys::UniqueFd& nearest) {
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(nearest));
  ATOLL_TRY_ASSIGN(sys::UniqueFd own, sys::open_beneath(upper, "", O_RDONLY | O_DIRECTORY));
  ATOLL_TRY(sys::change_owner(own, ".", info.st_uid, info.st_gid));
  ATOLL_TRY(sys::set_mode(own, info.st_mode & 07777));
  return sys::set_times(own, info.st_atim, info.st_mtim);
}

}  // namespace atl::jail
