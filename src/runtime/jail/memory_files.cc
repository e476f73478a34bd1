#include "runtime/jail/memory_files.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <thread>

#include "runtime/jail/launch.h"
#include "snapshot/manifest.h"
#include "sys/files.h"
#include "sys/process.h"

namespace atl::jail {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kLockName = "memory.lock";
constexpr std::chrono::milliseconds kPause{5};
constexpr std::uint64_t kRemovedAtOnce = 4 << 20;

// The process that a lock names, if it is a worker of ours that still runs.
void cancel_holder(const sys::UniqueFd& lock) {
  auto text = sys::read_at(lock, 0, 16);
  int pid = 0;
  if (!text) return;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), pid);
  if (error != std::errc() || pid <= 1) return;
  auto process = sys::open_pidfd(pid);
  if (!process) return;
  // Whoever has this number now must be of the warden's program, or it is another process.
  char own[4096];
  char other[4096];
  const std::string link = "/proc/" + std::to_string(pid) + "/exe";
  const ssize_t mine = ::readlink("/proc/self/exe", own, sizeof(own));
  const ssize_t theirs = ::readlink(link.c_str(), other, sizeof(other));
  std::string_view name(other, theirs > 0 ? std::size_t(theirs) : 0);
  // The program may have been replaced since that process was started.
  constexpr std::string_view kDeleted = " (deleted)";
  if (name.ends_with(kDeleted)) name.remove_suffix(kDeleted.size());
  if (mine <= 0 || name != std::string_view(own, std::size_t(mine))) return;
  (void)sys::signal_pidfd(*process, SIGTERM);
}

}  // namespace

std::string layers_fact(const std::vector<LayerRef>& layers) {
  std::string text;
  for (const LayerRef& layer : layers)
    text += (text.empty() ? "" : " ") + layer.snapshot + (layer.flat ? "+" : "");
  return text;
}

Result<bool> has_memory(const sys::UniqueFd& directory) {
  auto found = sys::stat_at(directory, kMemoryName);
  if (!found && found.error().sys_errno == ENOENT) return false;
  if (!found) return std::move(found).error();
  return S_ISDIR(found->st_mode);
}

Result<sys::UniqueFd> make_new_memory(const sys::UniqueFd& directory) {
  ATOLL_TRY(sys::remove_tree(directory, kNewMemoryName));
  ATOLL_TRY(sys::make_dir(directory, kNewMemoryName, 0700, sys::IfExists::fail));
  return sys::open_beneath(directory, kNewMemoryName, O_RDONLY | O_DIRECTORY);
}

Result<void> publish_memory(const sys::UniqueFd& directory) {
  ATOLL_TRY(sys::rename_within(directory, kNewMemoryName, kMemoryName));
  return sys::flush_to_disk(directory);
}

Result<void> use_memory(const sys::UniqueFd& directory) {
  ATOLL_TRY(sys::remove_tree(directory, kUsedMemoryName));
  ATOLL_TRY(sys::rename_within(directory, kMemoryName, kUsedMemoryName));
  auto flushed = sys::flush_to_disk(directory);
  if (!flushed) (void)sys::rename_within(directory, kUsedMemoryName, kMemoryName);
  return flushed;
}

Result<bool> remove_some_used_memory(const sys::UniqueFd& directory) {
  auto images =
      sys::open_beneath(directory, std::string(kUsedMemoryName) + "/" + snapshot::kImagesName,
                        O_RDONLY | O_DIRECTORY);
  if (images) {
    ATOLL_TRY_ASSIGN(const std::vector<std::string> names, sys::list_dir(*images));
    for (const std::string& name : names) {
      ATOLL_TRY_ASSIGN(const sys::UniqueFd file,
                       sys::open_beneath(*images, name, O_WRONLY | O_NOFOLLOW));
      ATOLL_TRY_ASSIGN(const struct stat info, sys::stat_of(file));
      if (std::uint64_t(info.st_size) <= kRemovedAtOnce) continue;
      ATOLL_TRY(sys::set_size(file, std::uint64_t(info.st_size) - kRemovedAtOnce));
      return true;
    }
  }
  ATOLL_TRY(sys::remove_tree(directory, kUsedMemoryName));
  return false;
}

Result<void> remove_stale_memory(const sys::UniqueFd& directory) {
  ATOLL_TRY(sys::remove_tree(directory, kNewMemoryName));
  return sys::remove_tree(directory, kUsedMemoryName);
}

Result<sys::UniqueFd> lock_memory(const sys::UniqueFd& directory) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd lock,
                   sys::open_beneath(directory, kLockName, O_RDWR | O_CREAT, 0600));
  ATOLL_TRY_ASSIGN(bool free, sys::try_lock(lock));
  if (!free) return make_error(Errc::failed_precondition, "its memory is being written");
  return lock;
}

Result<void> sign_lock(const sys::UniqueFd& lock) {
  ATOLL_TRY(sys::set_size(lock, 0));
  return sys::write_value(lock, std::to_string(::getpid()));
}

Result<void> await_lock(const sys::UniqueFd& directory, std::chrono::milliseconds grace,
                        std::chrono::milliseconds at_most) {
  auto lock = sys::open_beneath(directory, kLockName, O_RDONLY);
  if (!lock && lock.error().sys_errno == ENOENT) return {};
  if (!lock) return std::move(lock).error();
  const auto begin = Clock::now();
  bool asked = false;
  for (;;) {
    ATOLL_TRY_ASSIGN(bool free, sys::try_lock(*lock));
    if (free) return {};
    const auto waited = Clock::now() - begin;
    if (waited > at_most) return make_error(Errc::deadline_exceeded, "a dump does not end");
    if (waited > grace && !asked) {
      asked = true;
      cancel_holder(*lock);
    }
    std::this_thread::sleep_for(kPause);
  }
}

Result<void> flush_disk(const sys::UniqueFd& directory) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd image, sys::open_beneath(directory, kImageName, O_RDONLY));
  ATOLL_TRY(sys::flush_to_disk(image));
  auto mark = sys::open_beneath(directory, kMarkName, O_RDONLY);
  if (!mark) return std::move(mark).error();
  ATOLL_TRY(sys::flush_to_disk(*mark));
  return sys::flush_to_disk(directory);
}

}  // namespace atl::jail
