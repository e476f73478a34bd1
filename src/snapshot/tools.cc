#include <fmt/format.h>
#include <sys/mman.h>

#include <charconv>
#include <chrono>

#include "snapshot/criu.h"
#include "snapshot/snapshot.h"
#include "sys/files.h"
#include "sys/process.h"

namespace atl::snapshot {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr int kMajor = 4;
constexpr int kMinor = 2;

Error unusable(std::string why) {
  return make_error(Errc::failed_precondition, "CRIU cannot be used: " + std::move(why));
}

}  // namespace

Result<Tools> find_tools(const std::string& prefix) {
  const std::vector<std::string> command = command_line(prefix, "", {"--version"});
  for (const std::string& file : {command.front(), prefix + "/usr/sbin/criu"}) {
    if (!sys::is_executable(file)) return unusable("it is not installed in " + prefix);
  }
  sys::UniqueFd output(::memfd_create("criu", MFD_CLOEXEC));
  if (!output) return errno_error("memfd_create");
  sys::SpawnOptions options;
  options.path = command.front();
  options.argv = command;
  options.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  options.fds = {{output.get(), 1}};
  auto child = sys::spawn(options);
  if (!child) return unusable(child.error().message);
  ATOLL_TRY_ASSIGN(std::optional<sys::ExitStatus> status, child->wait(kPatience));
  if (!status || !status->success()) return unusable("it does not start");
  ATOLL_TRY_ASSIGN(std::string text, sys::read_at(output, 0, 4096));
  constexpr std::string_view kKey = "Version: ";
  const std::size_t at = text.find(kKey);
  if (at == std::string::npos) return unusable("it does not tell its version");
  Tools tools{prefix, text.substr(at + kKey.size())};
  tools.version.resize(std::min(tools.version.size(), tools.version.find_first_of("\n ")));
  int major = 0;
  int minor = 0;
  const char* const end = tools.version.data() + tools.version.size();
  const auto first = std::from_chars(tools.version.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.' ||
      std::from_chars(first.ptr + 1, end, minor).ec != std::errc())
    return unusable("it does not tell its version");
  if (std::pair(major, minor) < std::pair(kMajor, kMinor))
    return unusable(fmt::format("version {} is older than {}.{}", tools.version, kMajor, kMinor));
  return tools;
}

}  // namespace atl::snapshot
