#include "sys/cgroup.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <thread>

#include "sys/files.h"
#include "sys/process.h"

namespace atl::sys {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kFirstPause{100};
constexpr std::chrono::microseconds kLongestPause{5000};

// Calls `done` with growing pauses until it says true or the time is over.
template <class Done>
Result<bool> poll_until(std::chrono::milliseconds at_most, Done done) {
  const auto deadline = Clock::now() + at_most;
  auto pause = kFirstPause;
  for (;;) {
    ATOLL_TRY_ASSIGN(bool finished, done());
    if (finished) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

std::uint64_t number_in(std::string_view text) {
  std::uint64_t value = 0;
  text = trimmed(text);
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "key value" lines.
std::uint64_t value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ') {
      return number_in(line.substr(key.size() + 1));
    }
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return 0;
}

Result<std::vector<pid_t>> parse_pids(std::string_view text) {
  std::vector<pid_t> pids;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    pid_t pid = 0;
    std::from_chars(line.data(), line.data() + line.size(), pid);
    // 0 is a process of a pid namespace that is not ours to see; it cannot be one of ours.
    if (pid > 0) pids.push_back(pid);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return pids;
}

Result<UniqueFd> open_dir(const UniqueFd& parent, const std::string& name) {
  return open_beneath(parent, name, O_RDONLY | O_DIRECTORY);
}

}  // namespace

const Cgroup::Part* Cgroup::part_of(std::string_view controller) const {
  for (const Part& part : parts_) {
    if (kind_ == CgroupKind::v2 &&
        (controller.empty() || controller == "freezer" || controller == "cgroup"))
      return &part;
    if (std::find(part.controllers.begin(), part.controllers.end(), controller) !=
        part.controllers.end())
      return &part;
  }
  return nullptr;
}

Result<void> Cgroup::write(const std::string& controller, const std::string& file,
                           std::string_view value) const {
  const Part* part = part_of(controller);
  if (part == nullptr)
    return make_error(Errc::failed_precondition, "no cgroup controller " + controller);
  return write_beneath(part->dir, file, value);
}

Result<std::string> Cgroup::read(const std::string& controller, const std::string& file) const {
  const Part* part = part_of(controller);
  if (part == nullptr)
    return make_error(Errc::failed_precondition, "no cgroup controller " + controller);
  return read_beneath(part->dir, file);
}

bool Cgroup::has_file(const std::string& controller, const std::string& file) const {
  const Part* part = part_of(controller);
  return part != nullptr && ::faccessat(part->dir.get(), file.c_str(), F_OK, 0) == 0;
}

Result<std::vector<UniqueFd>> Cgroup::entrances() const {
  std::vector<UniqueFd> files;
  if (kind_ == CgroupKind::v2) return files;
  for (const Part& part : parts_) {
    ATOLL_TRY_ASSIGN(UniqueFd file, open_beneath(part.dir, "tasks", O_WRONLY));
    files.push_back(std::move(file));
  }
  return files;
}

Result<std::vector<UniqueFd>> Cgroup::entrances_for_others() const {
  if (kind_ == CgroupKind::v1) return entrances();
  std::vector<UniqueFd> files;
  for (const Part& part : parts_) {
    ATOLL_TRY_ASSIGN(UniqueFd file, open_beneath(part.dir, "cgroup.procs", O_WRONLY));
    files.push_back(std::move(file));
  }
  return files;
}

const UniqueFd* Cgroup::clone_target() const {
  return kind_ == CgroupKind::v2 && !parts_.empty() ? &parts_.front().dir : nullptr;
}

Result<std::string> Cgroup::freezer_path() const {
  const Part* part = part_of("freezer");
  if (part == nullptr) return make_error(Errc::not_found, "no freezer cgroup");
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(part->dir.get());
  const ssize_t size = ::readlink(link.c_str(), path, sizeof(path));
  if (size < 0 || std::size_t(size) == sizeof(path)) return errno_error("readlink " + link);
  return std::string(path, std::size_t(size));
}

Result<std::vector<pid_t>> Cgroup::processes() const {
  std::set<pid_t> all;
  for (const Part& part : parts_) {
    ATOLL_TRY_ASSIGN(std::string text, read_beneath(part.dir, "cgroup.procs", 16 << 20));
    ATOLL_TRY_ASSIGN(std::vector<pid_t> pids, parse_pids(text));
    all.insert(pids.begin(), pids.end());
  }
  return std::vector<pid_t>(all.begin(), all.end());
}

Result<bool> Cgroup::frozen() const {
  if (kind_ == CgroupKind::v2) {
    ATOLL_TRY_ASSIGN(std::string events, read("cgroup", "cgroup.events"));
    return value_of(events, "frozen") == 1;
  }
  ATOLL_TRY_ASSIGN(std::string state, read("freezer", "freezer.state"));
  return trimmed(state) == "FROZEN";
}

Result<bool> Cgroup::freezing() const {
  if (kind_ == CgroupKind::v2) {
    ATOLL_TRY_ASSIGN(std::string asked, read("cgroup", "cgroup.freeze"));
    return trimmed(asked) == "1";
  }
  ATOLL_TRY_ASSIGN(std::string state, read("freezer", "freezer.state"));
  return trimmed(state) != "THAWED";
}

Result<void> Cgroup::start_freezing() const {
  if (kind_ == CgroupKind::v2) return write("cgroup", "cgroup.freeze", "1");
  return write("freezer", "freezer.state", "FROZEN");
}

Result<void> Cgroup::freeze(std::chrono::milliseconds at_most) const {
  ATOLL_TRY(start_freezing());
  // Reading freezer.state makes the kernel look again; v2 tells by cgroup.events.
  auto stopped = poll_until(at_most, [this] { return frozen(); });
  if (stopped && *stopped) return {};
  auto undone = thaw();
  if (!stopped) return std::move(stopped).error();
  if (!undone) return std::move(undone).error();
  return make_error(Errc::deadline_exceeded, "processes did not freeze in time");
}

Result<void> Cgroup::thaw() const {
  if (kind_ == CgroupKind::v2) return write("cgroup", "cgroup.freeze", "0");
  return write("freezer", "freezer.state", "THAWED");
}

Result<void> Cgroup::kill_all() const {
  if (kind_ == CgroupKind::v2 && has_file("cgroup", "cgroup.kill"))
    return write("cgroup", "cgroup.kill", "1");
  ATOLL_TRY_ASSIGN(std::vector<pid_t> before, processes());
  std::vector<std::pair<pid_t, UniqueFd>> handles;
  for (pid_t pid : before) {
    auto handle = open_pidfd(pid);
    if (handle) handles.emplace_back(pid, std::move(*handle));
  }
  // A number that is still listed after its pidfd was opened was inside all the time: the pidfd is
  // no stranger's.
  ATOLL_TRY_ASSIGN(std::vector<pid_t> after, processes());
  for (const auto& [pid, handle] : handles) {
    if (!std::binary_search(after.begin(), after.end(), pid)) continue;
    auto sent = signal_pidfd(handle, SIGKILL);
    if (!sent && sent.error().sys_errno != ESRCH) return std::move(sent).error();
  }
  // v1 delivers the signal only when the group thaws. No instruction of a killed process runs then.
  if (part_of("freezer") != nullptr) return thaw();
  return {};
}

Result<void> Cgroup::remove(std::chrono::milliseconds at_most) {
  for (Part& part : parts_) {
    auto gone = poll_until(at_most, [&]() -> Result<bool> {
      auto removed = remove_dir(part.parent, name_);
      if (removed) return true;
      if (removed.error().sys_errno == EBUSY) return false;
      return std::move(removed).error();
    });
    if (!gone) return std::move(gone).error();
    if (!*gone)
      return make_error(Errc::deadline_exceeded, "cgroup " + name_ + " still has processes");
  }
  parts_.clear();
  return {};
}

Result<std::uint64_t> Cgroup::memory_limit() const {
  ATOLL_TRY_ASSIGN(
      std::string text,
      read("memory", kind_ == CgroupKind::v2 ? "memory.max" : "memory.limit_in_bytes"));
  std::uint64_t bytes = 0;  // as v2's "max" is read
  (void)std::from_chars(text.data(), text.data() + text.size(), bytes);
  return bytes;
}

Result<void> Cgroup::set_memory_limit(std::uint64_t bytes) const {
  const std::string value = std::to_string(bytes);
  if (kind_ == CgroupKind::v2) return write("memory", "memory.max", value);
  constexpr const char* kLimit = "memory.limit_in_bytes";
  constexpr const char* kWithSwap = "memory.memsw.limit_in_bytes";
  if (!has_file("memory", kWithSwap)) return write("memory", kLimit, value);
  // The limit with swap is never below the one without: which comes first depends on the way.
  if (auto lowered = write("memory", kLimit, value); lowered.ok())
    return write("memory", kWithSwap, value);
  ATOLL_TRY(write("memory", kWithSwap, value));
  return write("memory", kLimit, value);
}

Result<CgroupUsage> Cgroup::usage() const {
  CgroupUsage out;
  const auto number = [this](const char* controller, const char* file) -> std::uint64_t {
    auto text = read(controller, file);
    return text ? number_in(*text) : 0;
  };
  const auto keyed = [this](const char* controller, const char* file,
                            const char* key) -> std::uint64_t {
    auto text = read(controller, file);
    return text ? value_of(*text, key) : 0;
  };
  out.pids = number("pids", "pids.current");
  if (kind_ == CgroupKind::v2) {
    out.memory_bytes = number("memory", "memory.current");
    out.memory_peak_bytes = number("memory", "memory.peak");
    out.memory_cache_bytes = keyed("memory", "memory.stat", "file");
    out.cpu_micros = keyed("cgroup", "cpu.stat", "usage_usec");
    out.oom_kills = keyed("memory", "memory.events", "oom_kill");
  } else {
    out.memory_bytes = number("memory", "memory.usage_in_bytes");
    out.memory_peak_bytes = number("memory", "memory.max_usage_in_bytes");
    out.memory_cache_bytes = keyed("memory", "memory.stat", "total_cache");
    out.cpu_micros = number("cpuacct", "cpuacct.usage") / 1000;
    out.oom_kills = keyed("memory", "memory.oom_control", "oom_kill");
  }
  return out;
}

Result<CgroupTree> CgroupTree::open(CgroupLayout layout, std::vector<std::string> path) {
  CgroupTree tree;
  tree.layout_ = std::move(layout);
  tree.path_ = std::move(path);
  for (const Hierarchy& hierarchy : tree.layout_.hierarchies) {
    // Another server may remove an empty level between our mkdir and our open: start over.
    for (int attempt = 0;; ++attempt) {
      ATOLL_TRY_ASSIGN(UniqueFd at, open_trusted(hierarchy.mount_point, O_RDONLY | O_DIRECTORY));
      auto made = [&]() -> Result<void> {
        for (const std::string& level : tree.path_) {
          if (tree.layout_.kind == CgroupKind::v2) {
            for (const std::string& controller : hierarchy.controllers) {
              if (controller == "freezer") continue;
              ATOLL_TRY(write_beneath(at, "cgroup.subtree_control", "+" + controller));
            }
          }
          ATOLL_TRY(make_dir(at, level, 0755, IfExists::keep));
          ATOLL_TRY_ASSIGN(at, open_dir(at, level));
        }
        if (tree.layout_.kind == CgroupKind::v2) {
          for (const std::string& controller : hierarchy.controllers) {
            ATOLL_TRY(write_beneath(at, "cgroup.subtree_control", "+" + controller));
          }
        }
        return {};
      }();
      if (made) {
        tree.parents_.push_back(std::move(at));
        break;
      }
      if (made.error().sys_errno != ENOENT || attempt >= 8) {
        return std::move(made).error().with("cgroup below " + hierarchy.mount_point);
      }
    }
  }
  return tree;
}

Result<Cgroup> CgroupTree::create(const std::string& name) const {
  Cgroup group;
  group.kind_ = layout_.kind;
  group.name_ = name;
  auto built = [&]() -> Result<void> {
    for (std::size_t i = 0; i < parents_.size(); ++i) {
      ATOLL_TRY_ASSIGN(UniqueFd parent, open_beneath(parents_[i], "", O_RDONLY | O_DIRECTORY));
      ATOLL_TRY(make_dir(parent, name, 0755, IfExists::fail));
      Cgroup::Part part{std::move(parent), UniqueFd(), layout_.hierarchies[i].controllers};
      auto dir = open_dir(part.parent, name);
      group.parts_.push_back(std::move(part));
      if (!dir) return std::move(dir).error();
      group.parts_.back().dir = std::move(*dir);
    }
    return {};
  }();
  if (built) return group;
  auto removed = group.remove(std::chrono::milliseconds(100));
  if (!removed) return std::move(removed).error();
  return std::move(built).error().with("cgroup " + name);
}

Result<std::optional<Cgroup>> CgroupTree::find(const std::string& name) const {
  Cgroup group;
  group.kind_ = layout_.kind;
  group.name_ = name;
  for (std::size_t i = 0; i < parents_.size(); ++i) {
    auto dir = open_dir(parents_[i], name);
    if (!dir && dir.error().sys_errno == ENOENT) continue;
    if (!dir) return std::move(dir).error();
    ATOLL_TRY_ASSIGN(UniqueFd parent, open_beneath(parents_[i], "", O_RDONLY | O_DIRECTORY));
    group.parts_.push_back(
        {std::move(parent), std::move(*dir), layout_.hierarchies[i].controllers});
  }
  if (group.parts_.empty()) return std::optional<Cgroup>();
  return std::optional<Cgroup>(std::move(group));
}

Result<std::vector<std::string>> CgroupTree::list() const {
  std::set<std::string> names;
  for (const UniqueFd& parent : parents_) {
    ATOLL_TRY_ASSIGN(std::vector<std::string> entries, list_dir(parent));
    for (const std::string& entry : entries) {
      auto info = stat_at(parent, entry);
      if (info && S_ISDIR(info->st_mode)) names.insert(entry);
    }
  }
  return std::vector<std::string>(names.begin(), names.end());
}

void CgroupTree::remove_if_empty() const {
  for (const Hierarchy& hierarchy : layout_.hierarchies) {
    for (std::size_t depth = path_.size(); depth > 0; --depth) {
      std::string path = hierarchy.mount_point;
      for (std::size_t i = 0; i < depth; ++i) path += "/" + path_[i];
      if (::rmdir(path.c_str()) != 0) break;  // in use by us or by another server
    }
  }
}

}  // namespace atl::sys
