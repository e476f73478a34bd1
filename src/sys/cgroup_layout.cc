// Where the controllers are: a pure reading of mountinfo.
#include <algorithm>
#include <array>

#include "sys/cgroup.h"
#include "sys/files.h"

namespace atl::sys {
namespace {

constexpr std::array<std::string_view, 4> kRequired = {"memory", "pids", "cpu", "freezer"};
constexpr std::array<std::string_view, 2> kOptional = {"cpuacct", "devices"};

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(by);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      int value = 0;
      bool octal = true;
      for (std::size_t k = 1; k <= 3; ++k) {
        octal = octal && text[i + k] >= '0' && text[i + k] <= '7';
        value = value * 8 + (text[i + k] - '0');
      }
      if (octal) {
        out += char(value);
        i += 3;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

bool CgroupLayout::has(std::string_view controller) const {
  for (const Hierarchy& hierarchy : hierarchies) {
    for (const std::string& name : hierarchy.controllers) {
      if (name == controller) return true;
    }
  }
  return false;
}

Result<CgroupLayout> parse_cgroup_layout(std::string_view mountinfo) {
  CgroupLayout v1{CgroupKind::v1, {}};
  std::string v2_mount;
  for (std::string_view line : split(mountinfo, '\n')) {
    const std::size_t separator = line.find(" - ");
    if (separator == std::string_view::npos) continue;
    const auto before = split(line.substr(0, separator), ' ');
    const auto after = split(line.substr(separator + 3), ' ');
    if (before.size() < 6 || after.size() < 3) continue;
    if (after[0] == "cgroup2" && v2_mount.empty()) v2_mount = unescape(before[4]);
    if (after[0] != "cgroup") continue;
    Hierarchy hierarchy{unescape(before[4]), {}};
    for (std::string_view option : split(after[2], ',')) {
      if ((contains(kRequired, option) || contains(kOptional, option)) && !v1.has(option)) {
        hierarchy.controllers.emplace_back(option);
      }
    }
    if (!hierarchy.controllers.empty()) v1.hierarchies.push_back(std::move(hierarchy));
  }
  std::string missing;
  std::size_t found = 0;
  for (std::string_view name : kRequired) {
    if (v1.has(name)) {
      ++found;
    } else {
      missing += (missing.empty() ? "" : ", ") + std::string(name);
    }
  }
  if (found == kRequired.size()) return v1;
  if (found == 0 && !v2_mount.empty()) {
    return CgroupLayout{CgroupKind::v2, {Hierarchy{std::move(v2_mount), {}}}};
  }
  if (found == 0) return make_error(Errc::failed_precondition, "no cgroup filesystem is mounted");
  return make_error(Errc::failed_precondition, "cgroup v1 controllers not mounted: " + missing);
}

Result<CgroupLayout> detect_cgroup_layout() {
  ATOLL_TRY_ASSIGN(std::string mountinfo, read_trusted("/proc/self/mountinfo", 8 << 20));
  ATOLL_TRY_ASSIGN(CgroupLayout layout, parse_cgroup_layout(mountinfo));
  if (layout.kind == CgroupKind::v2) {
    Hierarchy& root = layout.hierarchies.front();
    ATOLL_TRY_ASSIGN(std::string text, read_trusted(root.mount_point + "/cgroup.controllers"));
    for (std::string_view name : split(text, ' ')) {
      while (!name.empty() && name.back() == '\n') name.remove_suffix(1);
      if (contains(kRequired, name)) root.controllers.emplace_back(name);
    }
  }
  return layout;
}

}  // namespace atl::sys
