#include "agent/interpreter/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace atl::agent::interpreter {
namespace {

constexpr int kRounds = 10;

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

std::set<pid_t> members_of(pid_t root, const std::vector<ProcessRow>& processes) {
  std::multimap<pid_t, pid_t> children;
  std::vector<pid_t> open;
  for (const ProcessRow& row : processes) {
    children.emplace(row.parent, row.pid);
    if (row.session == root || row.pid == root) open.push_back(row.pid);
  }
  std::set<pid_t> out;
  while (!open.empty()) {
    const pid_t pid = open.back();
    open.pop_back();
    if (!out.insert(pid).second) continue;
    const auto [from, to] = children.equal_range(pid);
    for (auto it = from; it != to; ++it) open.push_back(it->second);
  }
  return out;
}

}  // namespace

void kill_tree(pid_t root) {
  if (root <= 1) return;
  for (int round = 0; round < kRounds; ++round) {
    std::set<pid_t> members = members_of(root, all_processes());
    members.erase(::getpid());
    members.erase(1);
    if (members.empty()) return;
    for (const pid_t pid : members) ::kill(pid, SIGKILL);
  }
}

}  // namespace atl::agent::interpreter
