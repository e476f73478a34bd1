#include "agent/interpreter/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace atl::agent::interpreter {
namespace {

constexpr int kRounds = 50;

struct ProcessRow {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
};

// False: it is gone, or ended and only not yet waited for.
bool read_row(pid_t pid, ProcessRow& row) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return false;
  text[n] = '\0';
  // The name is in brackets and may itself hold anything.
  const char* rest = std::strrchr(text, ')');
  char state = 0;
  int parent = 0;
  int group = 0;
  int session = 0;
  if (rest == nullptr ||
      std::sscanf(rest + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4)
    return false;
  row = {pid, parent, session};
  return state != 'Z' && state != 'X';
}

std::vector<ProcessRow> all_processes() {
  std::vector<ProcessRow> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), &::closedir);
  if (!proc) return out;
  while (const dirent* entry = ::readdir(proc.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), pid);
    ProcessRow row;
    if (ec == std::errc() && end == name.data() + name.size() && read_row(pid, row))
      out.push_back(row);
  }
  return out;
}

// Adds to `known` what belongs to it: children, and whole sessions, whose members may be orphans.
// Returns those that live.
std::set<pid_t> members_of(std::set<pid_t>& known, const std::vector<ProcessRow>& processes) {
  std::set<pid_t> out;
  for (bool grown = true; grown;) {
    grown = false;
    for (const ProcessRow& row : processes) {
      if (row.pid == 1 || row.pid == ::getpid() || out.contains(row.pid)) continue;
      if (!known.contains(row.pid) && !known.contains(row.session) && !known.contains(row.parent))
        continue;
      known.insert(row.pid);
      out.insert(row.pid);
      grown = true;
    }
  }
  return out;
}

}  // namespace

void kill_tree(pid_t root) {
  if (root <= 1) return;
  std::set<pid_t> known{root};
  for (int round = 0; round < kRounds; ++round) {
    // Those that stand still make no new ones meanwhile.
    const std::set<pid_t> members = members_of(known, all_processes());
    if (members.empty()) return;
    for (const pid_t pid : members) ::kill(pid, SIGSTOP);
    for (const pid_t pid : members) ::kill(pid, SIGKILL);
  }
}

}  // namespace atl::agent::interpreter
