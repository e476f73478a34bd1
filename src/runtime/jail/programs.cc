#include "runtime/jail/programs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "base/encoding.h"
#include "base/log.h"
#include "base/sha256.h"
#include "runtime/jail/plan.h"
#include "runtime/jail/snapshot_store.h"
#include "runtime/jail/stage.h"
#include "snapshot/snapshot.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

constexpr std::size_t kSumSize = 64;
constexpr std::size_t kChunk = 1u << 20;
constexpr int kMaxDepth = 10;
constexpr std::string_view kUnfinished = ".new";
// For a warden of another instance that starts at the same time.
constexpr std::chrono::milliseconds kLockWait{10000};

bool is_sum(std::string_view text) {
  return text.size() == kSumSize && text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool is_missing(const Error& error) {
  return error.sys_errno == ENOENT || error.sys_errno == ENOTDIR;
}

enum class Flush { no, yes };

// What is read is also what is flushed.
class Summer {
 public:
  explicit Summer(Flush flush) : flush_(flush) {}

  Result<void> add(const sys::UniqueFd& dir, const std::string& name, const std::string& path,
                   int depth = 0) {
    if (depth > kMaxDepth) return make_error(Errc::failed_precondition, "too deep");
    ATOLL_TRY_ASSIGN(sys::UniqueFd file, sys::open_beneath(dir, name, O_RDONLY | O_NONBLOCK));
    ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(file));
    const bool directory = S_ISDIR(info.st_mode);
    if (!directory && !S_ISREG(info.st_mode))
      return make_error(Errc::failed_precondition, path + " is neither file nor directory");
    hash_.update(path + '\0' + std::to_string(info.st_mode & 07777) + '\0' +
                 (directory ? "directory" : std::to_string(info.st_size)) + '\0');
    ATOLL_TRY(directory ? add_entries(file, path, depth) : add_content(file, info.st_size));
    return flush_ == Flush::yes ? sys::flush_to_disk(file) : Result<void>();
  }
  std::string finish() { return hex_encode(hash_.finish()); }

 private:
  Result<void> add_entries(const sys::UniqueFd& dir, const std::string& path, int depth) {
    ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(dir));
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      ATOLL_TRY(add(dir, name, path + "/" + name, depth + 1));
    }
    return {};
  }
  Result<void> add_content(const sys::UniqueFd& file, off_t size) {
    for (off_t at = 0; at < size;) {
      ATOLL_TRY_ASSIGN(std::string bytes, sys::read_at(file, std::uint64_t(at), kChunk));
      if (bytes.empty()) return make_error(Errc::data_loss, "a file became shorter");
      hash_.update(bytes);
      at += off_t(bytes.size());
    }
    return {};
  }

  Sha256 hash_;
  Flush flush_;
};

// Of the agent in one directory and `kernels` in another.
Result<std::string> sum_of(const sys::UniqueFd& agent_dir, const sys::UniqueFd& dir, Flush flush) {
  Summer summer(flush);
  ATOLL_TRY(summer.add(agent_dir, kAgentName, kAgentName));
  ATOLL_TRY(summer.add(dir, kKernelsName, kKernelsName));
  return summer.finish();
}

Result<sys::UniqueFd> open_dir(const sys::UniqueFd& dir, const std::string& name) {
  return sys::open_beneath(dir, name, O_RDONLY | O_DIRECTORY);
}
Result<sys::UniqueFd> open_stage(const std::string& name = "") {
  return sys::open_trusted(std::string(kStage) + "/" + name, O_RDONLY | O_DIRECTORY);
}

Result<sys::UniqueFd> make_and_open(const sys::UniqueFd& dir, const std::string& name) {
  ATOLL_TRY(sys::make_dir(dir, name, 0755, sys::IfExists::fail));
  return open_dir(dir, name);
}

// The two directories that have agent and kernels may be the same, on both sides.
Result<void> copy_both(const sys::UniqueFd& agent_dir, const sys::UniqueFd& dir,
                       const sys::UniqueFd& to_agent_dir, const sys::UniqueFd& to) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd agent, sys::open_beneath(agent_dir, kAgentName, O_RDONLY));
  ATOLL_TRY(copy_agent(agent, to_agent_dir));
  ATOLL_TRY_ASSIGN(sys::UniqueFd kernels, open_dir(dir, kKernelsName));
  ATOLL_TRY_ASSIGN(sys::UniqueFd to_kernels, make_and_open(to, kKernelsName));
  return copy_kernels(kernels, to_kernels);
}

// Adds what a directory of a sandbox or snapshot needs. An error: that cannot be told.
Result<void> add_needed(const sys::UniqueFd& directory, std::set<std::string>& needed) {
  auto noted = sys::read_beneath(directory, kProgramsName, kSumSize);
  if (noted) needed.insert(std::move(*noted));
  if (!noted && !is_missing(noted.error())) return std::move(noted).error();
  auto memory = open_dir(directory, kMemoryName);
  if (!memory && is_missing(memory.error())) return {};
  if (!memory) return std::move(memory).error();
  auto facts = snapshot::read_facts(*memory);
  // No image, or one that is good for nothing.
  if (!facts && (facts.error().code == Errc::not_found || facts.error().code == Errc::data_loss))
    return {};
  if (!facts) return std::move(facts).error();
  const auto found = facts->find(kProgramsFact);
  if (found != facts->end()) needed.insert(found->second);
  return {};
}

// Of all instances.
Result<std::set<std::string>> needed_in(const sys::UniqueFd& home) {
  std::set<std::string> needed;
  for (const char* kind : {"sandboxes", "snapshots"}) {
    auto instances = open_dir(home, kind);
    if (!instances && is_missing(instances.error())) continue;
    if (!instances) return std::move(instances).error();
    ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(*instances));
    for (const std::string& name : names) {
      auto instance = open_dir(*instances, name);
      if (!instance && is_missing(instance.error())) continue;
      if (!instance) return std::move(instance).error();
      ATOLL_TRY_ASSIGN(std::vector<std::string> ids, sys::list_dir(*instance));
      for (const std::string& id : ids) {
        auto directory = open_dir(*instance, id);
        if (!directory && is_missing(directory.error())) continue;
        if (!directory) return std::move(directory).error();
        auto added = add_needed(*directory, needed);
        if (!added) return std::move(added).error().with(name + "/" + id);
      }
    }
  }
  return needed;
}

}  // namespace

Result<Programs> Programs::open(const sys::UniqueFd& home) {
  ATOLL_TRY_ASSIGN(sys::FileLock lock,
                   sys::FileLock::acquire_dir(home, kProgramsName, 0755, kLockWait));
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(lock.fd()));
  if (info.st_uid != 0 || (info.st_mode & 022) != 0)
    return make_error(Errc::failed_precondition,
                      "it must belong to root and be writable by nobody else");
  ATOLL_TRY_ASSIGN(sys::UniqueFd stage, open_stage());
  ATOLL_TRY_ASSIGN(sys::UniqueFd agent_dir, open_stage(kStageAgent));
  ATOLL_TRY_ASSIGN(std::string sum, sum_of(agent_dir, stage, Flush::no));
  ATOLL_TRY_ASSIGN(sys::UniqueFd all, open_dir(home, kProgramsName));
  Programs programs(std::move(all), std::move(sum));
  ATOLL_TRY(programs.keep(programs.current_));
  ATOLL_TRY(programs.hold_current());
  auto removed = programs.remove_unused(home);
  if (!removed) log::warn("programs that nobody needs stay", {{"error", removed.error().message}});
  return programs;
}

Result<std::string> Programs::of(const sys::UniqueFd& directory) const {
  auto noted = sys::read_beneath(directory, kProgramsName, kSumSize);
  if (!noted && noted.error().sys_errno == ENOENT) return current_;
  if (!noted) return std::move(noted).error();
  if (!is_sum(*noted)) return make_error(Errc::data_loss, "it is not known what the sandbox runs");
  return std::move(*noted);
}

Result<void> Programs::note(const sys::UniqueFd& directory, const std::string& sum) const {
  const std::string unfinished = std::string(kProgramsName) + std::string(kUnfinished);
  ATOLL_TRY(sys::remove_file(directory, unfinished));
  ATOLL_TRY(sys::create_file(directory, unfinished, sum, 0600, 0));
  return sys::rename_over(directory, unfinished, kProgramsName);
}

Result<bool> Programs::is_kept(const std::string& sum) const {
  if (!is_sum(sum)) return make_error(Errc::data_loss, "not a checksum of programs");
  auto found = sys::stat_at(all_, sum);
  if (!found && found.error().sys_errno == ENOENT) return false;
  if (!found) return std::move(found).error();
  return S_ISDIR(found->st_mode);
}

Result<void> Programs::keep(const std::string& sum) const {
  ATOLL_TRY_ASSIGN(bool there, is_kept(sum));
  if (there) return {};
  if (sum == current_) return keep_current();
  return make_error(Errc::failed_precondition,
                    "it was started by another version of Atoll whose programs are gone");
}

Result<void> Programs::keep_current() const {
  const std::string unfinished = current_ + std::string(kUnfinished);
  ATOLL_TRY(sys::remove_tree(all_, unfinished));
  ATOLL_TRY_ASSIGN(sys::UniqueFd to, make_and_open(all_, unfinished));
  ATOLL_TRY_ASSIGN(sys::UniqueFd stage, open_stage());
  ATOLL_TRY_ASSIGN(sys::UniqueFd agent_dir, open_stage(kStageAgent));
  auto copied = copy_both(agent_dir, stage, to, to);
  if (copied) {
    auto sum = sum_of(to, to, Flush::yes);
    if (!sum) copied = std::move(sum).error();
    if (sum && *sum != current_) copied = make_error(Errc::data_loss, "the copy differs");
  }
  if (copied) copied = sys::flush_to_disk(to);
  if (copied) copied = sys::rename_within(all_, unfinished, current_);
  if (!copied) {
    (void)sys::remove_tree(all_, unfinished);  // the next warden removes it too
    return copied;
  }
  return sys::flush_to_disk(all_);
}

Result<void> Programs::hold_current() {
  ATOLL_TRY_ASSIGN(held_, open_dir(all_, current_));
  if (::flock(held_.get(), LOCK_SH | LOCK_NB) != 0) return errno_error("flock");
  return {};
}

Result<bool> Programs::provide(const std::string& sum) {
  if (sum == current_ || provided_.contains(sum)) return true;
  ATOLL_TRY_ASSIGN(bool there, is_kept(sum));
  if (!there) return false;
  ATOLL_TRY_ASSIGN(sys::UniqueFd from, open_dir(all_, sum));
  ATOLL_TRY_ASSIGN(sys::UniqueFd others, open_stage(kStagePrograms));
  ATOLL_TRY(sys::remove_tree(others, sum));  // of an attempt that failed
  auto copied = [&]() -> Result<void> {
    ATOLL_TRY_ASSIGN(sys::UniqueFd to, make_and_open(others, sum));
    ATOLL_TRY_ASSIGN(sys::UniqueFd agent_dir, make_and_open(to, kStageAgent));
    ATOLL_TRY(copy_both(from, from, agent_dir, to));
    ATOLL_TRY_ASSIGN(const std::string found, sum_of(agent_dir, to, Flush::no));
    if (found != sum) return make_error(Errc::data_loss, "the kept programs are damaged");
    return {};
  }();
  if (!copied) {
    (void)sys::remove_tree(others, sum);
    if (is_missing(copied.error()))
      return make_error(Errc::data_loss, "the kept programs are damaged");
    return std::move(copied).error();
  }
  provided_.insert(sum);
  return true;
}

std::string Programs::place(const std::string& sum) const {
  return sum == current_ ? "" : std::string(kStagePrograms) + "/" + sum;
}

// Locks come first: what a warden that ended just now has written is seen.
Result<void> Programs::remove_unused(const sys::UniqueFd& home) const {
  ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(all_));
  std::vector<std::pair<std::string, sys::UniqueFd>> unlocked;
  for (const std::string& name : names) {
    if (name == current_) continue;
    if (name.ends_with(kUnfinished)) {
      ATOLL_TRY(sys::remove_tree(all_, name));
      continue;
    }
    if (!is_sum(name)) continue;
    ATOLL_TRY_ASSIGN(sys::UniqueFd dir, open_dir(all_, name));
    ATOLL_TRY_ASSIGN(bool free, sys::try_lock(dir));
    if (free) unlocked.emplace_back(name, std::move(dir));
  }
  if (unlocked.empty()) return {};
  ATOLL_TRY_ASSIGN(const std::set<std::string> needed, needed_in(home));
  for (const auto& [name, dir] : unlocked) {
    if (needed.contains(name)) continue;
    // Never half there under its name.
    ATOLL_TRY(sys::rename_within(all_, name, name + std::string(kUnfinished)));
    ATOLL_TRY(sys::remove_tree(all_, name + std::string(kUnfinished)));
  }
  return {};
}

}  // namespace atl::jail
