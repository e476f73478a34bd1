#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string_view>

#include "snapshot/checksum.h"
#include "snapshot/criu.h"
#include "snapshot/image.h"
#include "snapshot/manifest.h"
#include "snapshot/patch.h"
#include "snapshot/scan.h"
#include "snapshot/snapshot.h"
#include "snapshot/steps.h"
#include "snapshot/workspace.h"
#include "sys/files.h"

namespace atl::snapshot {
namespace {

constexpr std::size_t kMaxLog = 16u << 20;
constexpr std::size_t kMaxImages = 1u << 20;
// How much of a file is summed up, or written to disk, before somebody looks whether to go on.
constexpr std::uint64_t kPiece = 8u << 20;
constexpr std::string_view kPages = "pages-";  // contents of memory, nearly all of an image

Result<void> check_frozen(const std::string& cgroup) {
  ATOLL_TRY_ASSIGN(bool frozen, is_frozen(cgroup));
  if (!frozen) return make_error(Errc::failed_precondition, "the sandbox is not frozen");
  return {};
}

// Of all files in a directory.
std::uint64_t size_of(const sys::UniqueFd& dir) {
  std::uint64_t size = 0;
  auto names = sys::list_dir(dir);
  if (!names) return size;
  for (const std::string& name : *names) {
    auto info = sys::stat_at(dir, name);
    if (info) size += std::uint64_t(info->st_size);
  }
  return size;
}

}  // namespace

class Checkpoint::Work {
 public:
  explicit Work(const CheckpointPlan& plan) : plan_(plan) {}

  Result<void> write() {
    ATOLL_TRY(check_frozen(plan_.cgroup));
    ATOLL_TRY_ASSIGN(manifest_.host, this_host(plan_.tools));
    ATOLL_TRY_ASSIGN(scan_, scan(plan_));
    steps_.done("scan");
    ATOLL_TRY(dump());
    steps_.done("dump");
    ATOLL_TRY(patch());
    ATOLL_TRY(check_complete());
    steps_.done("patch");
    // Still as it was, and nobody has thawed it under CRIU.
    return check_frozen(plan_.cgroup);
  }

  Result<Checkpointed> seal() {
    steps_.begin();
    ATOLL_TRY(sum_up());
    steps_.done("checksums");
    ATOLL_TRY(make_durable());
    steps_.done("sync");
    return Checkpointed{std::move(links_), bytes_, manifest_.memory_bytes, steps_.take()};
  }

  Links& links() { return links_; }

 private:
  Result<void> dump() {
    // Not 0700: CRIU reads images with the sandbox's ids. The directory above is closed.
    ATOLL_TRY(sys::make_dir(*plan_.directory, kImagesName, 0755, sys::IfExists::fail));
    ATOLL_TRY_ASSIGN(images_,
                     sys::open_beneath(*plan_.directory, kImagesName, O_RDONLY | O_DIRECTORY));
    ATOLL_TRY_ASSIGN(Workspace space, Workspace::make());
    DumpCommand command;
    command.init = plan_.init;
    command.images = sys::path_of(images_);
    command.cgroup = plan_.cgroup;
    command.external_mounts = scan_.external_mounts;
    for (const ForeignFile& file : scan_.files)
      command.external_files.push_back(external_file(file.mount, file.inode));
    Run run;
    run.command = command_line(plan_.tools.prefix, preload_path(), dump_arguments(command));
    run.env = {program_path(), fmt::format("ATOLL_OWNER={}", plan_.first_id)};
    ATOLL_TRY_ASSIGN(output_, new_output());
    run.output = output_.get();
    ATOLL_TRY_ASSIGN(sys::ExitStatus status,
                     run_dump(std::move(run), {plan_.cgroup, [this] { return size_of(images_); },
                                               [this] { return follow(); }}));
    if (!status.success()) return failure(status);
    space.keep_knowledge();
    // It has texts of processes inside and is of no use any more.
    return sys::remove_file(images_, kDumpLog);
  }

  // CRIU only appends to the contents of memory. They are summed up, and on their way to the disk,
  // while it writes them. What cannot be done now is done at the end.
  bool follow() {
    auto names = sys::list_dir(images_);
    if (!names) return false;
    bool more = false;
    for (const std::string& name : *names) {
      if (!name.starts_with(kPages)) continue;
      auto file = sys::open_beneath(images_, name, O_RDONLY | O_NOFOLLOW);
      if (!file) continue;
      FileSum& sum = followed_[name];
      const std::uint64_t begin = sum.size;
      auto added = extend(sum, *file, kPiece);
      if (!added || *added == 0) continue;
      (void)::sync_file_range(file->get(), off_t(begin), off_t(*added), SYNC_FILE_RANGE_WRITE);
      more = true;
    }
    return more;
  }

  Error failure(const sys::ExitStatus& status) const {
    if (is_cancelled()) return make_error(Errc::aborted, "cancelled");
    auto log = sys::read_beneath(images_, kDumpLog, kMaxLog);
    const std::string text = log ? std::move(*log) : std::string();
    if (tells_of_no_space(text))
      return make_error(Errc::resource_exhausted, "no space left for the memory of the sandbox");
    // Without a log nothing has been written: a full disk looks like that as well.
    auto space = sys::space_of(*plan_.directory);
    if (text.empty() && space && space->used >= space->total)
      return make_error(Errc::resource_exhausted, "no space left for the memory of the sandbox");
    std::string complaint = first_complaint(text + text_of_output(output_));
    if (complaint.empty())
      complaint = fmt::format(
          "{} {}", status.kind == sys::ExitStatus::Kind::exited ? "exit status" : "signal",
          status.value);
    return make_error(Errc::failed_precondition, "criu: " + complaint);
  }

  Result<void> patch() {
    FilesPatch patch;
    for (const ForeignFile& file : scan_.files) {
      const std::string key = external_file(file.mount, file.inode);
      if (file.same) {
        patch.paths[key] = file.path;
        continue;
      }
      ATOLL_TRY_ASSIGN(sys::UniqueFd original,
                       sys::open_beneath(*plan_.template_root, file.path.substr(1), O_PATH));
      ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(original));
      manifest_.kept_files.push_back({key, file.path, std::uint64_t(info.st_size)});
    }
    ATOLL_TRY_ASSIGN(std::string mounts, read_image(only("mountpoints-")));
    ATOLL_TRY_ASSIGN(patch.root_mount, root_mount(mounts));
    ATOLL_TRY_ASSIGN(std::string files, read_image("files.img"));
    ATOLL_TRY_ASSIGN(std::string patched, patch_files(files, patch));
    ATOLL_TRY(make_links(patched));
    ATOLL_TRY(sys::remove_file(images_, "files.img"));
    return sys::create_file(images_, "files.img", patched, 0644, 0);
  }

  // CRIU removes its own links when it leaves the tree alive.
  Result<void> make_links(std::string_view files) {
    auto remaps = sys::read_beneath(images_, "remap-fpath.img", kMaxImageBytes);
    if (!remaps && remaps.error().sys_errno == ENOENT) return {};
    if (!remaps) return std::move(remaps).error();
    ATOLL_TRY_ASSIGN(std::vector<LinkRemap> wanted, link_remaps(*remaps, files));
    if (wanted.empty()) return {};
    ATOLL_TRY_ASSIGN(sys::UniqueFd root, sys::open_trusted(fmt::format("/proc/{}/root", plan_.init),
                                                           O_PATH | O_DIRECTORY));
    ATOLL_TRY_ASSIGN(struct stat top, sys::stat_of(root));
    for (const LinkRemap& remap : wanted) {
      const RemovedName* found = nullptr;
      for (const RemovedName& name : scan_.removed) {
        if (name.path != remap.removed) continue;
        if (found != nullptr) return unclear();
        found = &name;
      }
      // Other filesystems are in the image already, without the link.
      if (found == nullptr || found->device != top.st_dev) return unclear();
      const std::size_t slash = remap.link.rfind('/');
      const std::string parent = slash == std::string::npos ? "" : remap.link.substr(0, slash);
      ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_beneath(root, parent, O_PATH | O_DIRECTORY));
      ATOLL_TRY(links_.add(found->file, std::move(dir),
                           slash == std::string::npos ? remap.link : remap.link.substr(slash + 1)));
    }
    return {};
  }
  static Error unclear() {
    return make_error(
        Errc::failed_precondition,
        "descriptor: a file is open under a removed name and cannot be found by others");
  }

  // The one image whose name begins so; empty if there is not exactly one.
  std::string only(std::string_view prefix) const {
    auto names = sys::list_dir(images_);
    std::string found;
    if (!names) return found;
    for (const std::string& name : *names) {
      if (!name.starts_with(prefix)) continue;
      if (!found.empty()) return {};
      found = name;
    }
    return found;
  }
  Result<std::string> read_image(const std::string& name) const {
    if (name.empty()) return make_error(Errc::internal, "CRIU left an image out");
    return sys::read_beneath(images_, name, kMaxImageBytes);
  }

  // Every process of the scan is in it.
  Result<void> check_complete() const {
    ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(images_));
    std::sort(names.begin(), names.end());
    const auto has = [&](const std::string& name) {
      return std::binary_search(names.begin(), names.end(), name);
    };
    std::vector<std::string> wanted = {"inventory.img", "pstree.img", "files.img"};
    for (const pid_t pid : scan_.inner_pids) wanted.push_back(fmt::format("core-{}.img", pid));
    for (const std::string& name : wanted) {
      if (!has(name)) return make_error(Errc::failed_precondition, "criu: left out " + name);
    }
    return {};
  }

  Result<void> sum_up() {
    ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(images_));
    if (names.size() > kMaxImages) return make_error(Errc::failed_precondition, "too many images");
    for (const std::string& name : names) {
      ATOLL_TRY_ASSIGN(sys::UniqueFd file, sys::open_beneath(images_, name, O_RDONLY | O_NOFOLLOW));
      // The disk writes while the checksum is made.
      (void)::sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
      ATOLL_TRY_ASSIGN(FileSum sum, sum_of(file, followed_[name]));
      ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(file));
      if (std::uint64_t(info.st_size) != sum.size)
        return make_error(Errc::failed_precondition, "criu: wrote over " + name);
      manifest_.images[name] = sum;
      bytes_ += sum.size;
      if (name.starts_with(kPages)) manifest_.memory_bytes += sum.size;
    }
    // Pages that a kernel shares with its zygote are its own once it comes back.
    const std::uint64_t needed = manifest_.memory_bytes + kRestoreMargin;
    if (plan_.memory_limit != 0 && needed > plan_.memory_limit)
      return make_error(Errc::failed_precondition,
                        fmt::format("memory: it would need {} MB to come back and may have {} MB",
                                    needed >> 20, plan_.memory_limit >> 20));
    manifest_.facts = plan_.facts;
    manifest_.id_count = plan_.id_count;
    manifest_.mounts = scan_.external_mounts;
    return {};
  }

  Result<void> make_durable() {
    for (const auto& [name, sum] : manifest_.images) {
      ATOLL_TRY_ASSIGN(sys::UniqueFd file, sys::open_beneath(images_, name, O_RDONLY | O_NOFOLLOW));
      // A cancel does not wait for all of it.
      for (std::uint64_t at = 0; at < sum.size; at += kPiece) {
        ATOLL_TRY(check_cancelled());
        (void)::sync_file_range(
            file.get(), off_t(at), off_t(kPiece),
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
      }
      ATOLL_TRY(sys::flush_to_disk(file));
    }
    ATOLL_TRY(sys::flush_to_disk(images_));
    const std::string text = to_text(manifest_);
    bytes_ += text.size();
    ATOLL_TRY(sys::create_file(*plan_.directory, kManifestName, text, 0600, 0));
    ATOLL_TRY_ASSIGN(sys::UniqueFd file,
                     sys::open_beneath(*plan_.directory, kManifestName, O_RDONLY));
    ATOLL_TRY(sys::flush_to_disk(file));
    return sys::flush_to_disk(*plan_.directory);
  }

  const CheckpointPlan& plan_;
  Scan scan_;
  Manifest manifest_;
  sys::UniqueFd images_;
  sys::UniqueFd output_;
  std::map<std::string, FileSum> followed_;
  std::uint64_t bytes_ = 0;
  Links links_;
  Steps steps_;
};

Checkpoint::Checkpoint(std::unique_ptr<Work> work) : work_(std::move(work)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::write(const CheckpointPlan& plan) {
  if (plan.directory == nullptr) return make_error(Errc::invalid_argument, "no directory");
  auto work = std::make_unique<Work>(plan);
  ATOLL_TRY(work->write());
  return Checkpoint(std::move(work));
}

Links& Checkpoint::links() { return work_->links(); }
Result<Checkpointed> Checkpoint::seal() { return work_->seal(); }

Result<Checkpointed> checkpoint(const CheckpointPlan& plan) {
  ATOLL_TRY_ASSIGN(Checkpoint writing, Checkpoint::write(plan));
  ATOLL_TRY_ASSIGN(Checkpointed made, writing.seal());
  ATOLL_TRY(check_frozen(plan.cgroup));
  return made;
}

}  // namespace atl::snapshot
