// The pure parts of scan.h.
#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "snapshot/scan.h"

namespace atl::snapshot {
namespace {

Error unexpected(std::string_view what) {
  return make_error(Errc::internal, fmt::format("the kernel's {} is not as expected", what));
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view next_word(std::string_view& line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    line = {};
    return {};
  }
  line.remove_prefix(begin);
  const std::size_t end = line.find_first_of(" \t");
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(word.size());
  return word;
}

template <class Number>
bool to_number(std::string_view text, Number& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

bool to_device(std::string_view text, std::uint64_t& device, int base) {
  const std::size_t colon = text.find(':');
  unsigned high = 0;
  unsigned low = 0;
  if (colon == std::string_view::npos || !to_number(text.substr(0, colon), high, base) ||
      !to_number(text.substr(colon + 1), low, base))
    return false;
  device = ::makedev(high, low);
  return true;
}

// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '\\' && i + 3 < text.size() && to_number(text.substr(i + 1, 3), value, 8)) {
      out.push_back(char(value));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return out;
}

}  // namespace

std::string_view name_of(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::io_uring:
      return "io_uring";
    case Obstacle::userfaultfd:
      return "userfaultfd";
    case Obstacle::perf_event:
      return "perf_event";
    case Obstacle::descriptor:
      return "descriptor";
    case Obstacle::socket:
      return "socket";
    case Obstacle::outside_socket:
      return "outside_socket";
    case Obstacle::traced:
      return "traced";
    case Obstacle::stopped:
      return "stopped";
    case Obstacle::namespaces:
      return "namespaces";
    case Obstacle::mount:
      return "mount";
    case Obstacle::outside_process:
      return "outside_process";
    case Obstacle::foreign_file:
      return "foreign_file";
  }
  return "unknown";
}

Result<std::vector<MountLine>> parse_mountinfo(std::string_view text) {
  std::vector<MountLine> mounts;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (line.empty()) continue;
    MountLine mount;
    const bool numbered = to_number(next_word(line), mount.id);
    next_word(line);  // parent
    if (!numbered || !to_device(next_word(line), mount.device, 10)) return unexpected("mountinfo");
    next_word(line);  // root
    mount.path = unescape(next_word(line));
    const std::size_t dash = line.find(" - ");
    if (mount.path.empty() || dash == std::string_view::npos) return unexpected("mountinfo");
    line.remove_prefix(dash + 3);
    mount.type = next_word(line);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

Result<std::vector<std::string>> check_mounts(const std::vector<MountLine>& found,
                                              const std::vector<ExpectedMount>& expected) {
  std::vector<std::string> external;
  std::set<std::string> seen;
  for (const MountLine& mount : found) {
    const auto known = std::find_if(expected.begin(), expected.end(), [&](const ExpectedMount& e) {
      return e.path == mount.path && e.type == mount.type;
    });
    if (known == expected.end() || !seen.insert(mount.path).second) {
      return make_error(Errc::failed_precondition,
                        fmt::format("{}: {} ({}) was mounted inside", name_of(Obstacle::mount),
                                    printable(mount.path), printable(mount.type)));
    }
    if (known->external) external.push_back(mount.path);
  }
  if (!seen.contains("/")) return unexpected("mountinfo");
  return external;
}

Result<TaskStatus> parse_status(std::string_view text) {
  TaskStatus status;
  bool complete = true;
  int found = 0;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    const std::string_view key = next_word(line);
    if (key == "Name:") {
      status.name = printable(next_word(line));
      ++found;
    } else if (key == "State:") {
      const std::string_view word = next_word(line);
      complete &= word.size() == 1;
      if (!word.empty()) status.state = word.front();
      ++found;
    } else if (key == "PPid:") {
      complete &= to_number(next_word(line), status.parent);
      ++found;
    } else if (key == "TracerPid:") {
      complete &= to_number(next_word(line), status.tracer);
      ++found;
    } else if (key == "NSpid:") {
      for (std::string_view word = next_word(line); !word.empty(); word = next_word(line))
        complete &= to_number(word, status.inner_pid);
      ++found;
    }
  }
  if (!complete || found != 5) return unexpected("status");
  return status;
}

Result<std::vector<MapLine>> parse_maps(std::string_view text) {
  std::vector<MapLine> maps;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (line.empty()) continue;
    MapLine map;
    const std::string_view range = next_word(line);
    const std::size_t dash = range.find('-');
    next_word(line);  // rights
    next_word(line);  // offset
    if (dash == std::string_view::npos || !to_number(range.substr(0, dash), map.begin, 16) ||
        !to_number(range.substr(dash + 1), map.end, 16) ||
        !to_device(next_word(line), map.device, 16) || !to_number(next_word(line), map.inode))
      return unexpected("maps");
    const std::size_t name = line.find_first_not_of(' ');
    if (name != std::string_view::npos) map.name = line.substr(name);
    if (map.inode == 0 && map.device == 0) continue;
    maps.push_back(std::move(map));
  }
  return maps;
}

std::optional<Obstacle> obstacle_of_link(std::string_view target) {
  if (target.starts_with('/') || target.starts_with("socket:[") || target.starts_with("pipe:["))
    return std::nullopt;
  constexpr std::string_view kAnonymous = "anon_inode:";
  if (!target.starts_with(kAnonymous)) return Obstacle::descriptor;  // namespaces, for example
  target.remove_prefix(kAnonymous.size());
  constexpr std::array<std::string_view, 7> kFine = {
      "[eventfd]", "[eventpoll]", "[timerfd]", "[signalfd]", "inotify", "[pidfd]", "[fanotify]"};
  if (std::find(kFine.begin(), kFine.end(), target) != kFine.end()) return std::nullopt;
  if (target == "[io_uring]") return Obstacle::io_uring;
  if (target == "[userfaultfd]") return Obstacle::userfaultfd;
  if (target == "[perf_event]") return Obstacle::perf_event;
  return Obstacle::descriptor;
}

}  // namespace atl::snapshot
