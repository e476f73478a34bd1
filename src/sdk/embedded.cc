#include "sdk/embedded.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

extern char** environ;

namespace atl::sdk {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kEndTime{60};
constexpr std::size_t kMaxExports = 64 << 10;
constexpr std::size_t kLastWords = 2000;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool is_program(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path, ec) && ::access(path.c_str(), X_OK) == 0;
}

// The library's own file: PREFIX/lib/libatoll.so.0, or PREFIX/lib/TRIPLET/...
fs::path library_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&is_program), &info) == 0 || !info.dli_fname)
    return {};
  std::error_code ec;
  return fs::canonical(info.dli_fname, ec);
}

atl::Result<std::string> find_atoll(const std::string& option) {
  if (!option.empty() || !environment("ATOLL_PROGRAM").empty()) {
    const std::string named = option.empty() ? environment("ATOLL_PROGRAM") : option;
    if (is_program(named)) return named;
    return make_error(Errc::not_found, "no program: " + named);
  }
  std::vector<fs::path> candidates;
  const fs::path library = library_path();
  fs::path dir = library.parent_path();
  for (int up = 0; up < 3 && dir.has_relative_path(); ++up, dir = dir.parent_path())
    candidates.push_back(dir / "bin" / "atoll");
  std::string path = environment("PATH");
  while (!path.empty()) {
    const std::size_t colon = std::min(path.find(':'), path.size());
    if (colon > 0) candidates.push_back(fs::path(path.substr(0, colon)) / "atoll");
    path.erase(0, colon + 1);
  }
  for (const fs::path& each : candidates) {
    if (is_program(each)) return each.string();
  }
  return make_error(Errc::not_found,
                    "the program atoll is neither installed with the library nor in PATH. FIX: "
                    "install it, or set ATOLL_PROGRAM");
}

atl::Result<std::string> make_home() {
  std::string pattern = environment("TMPDIR");
  if (pattern.empty()) pattern = "/var/tmp";
  pattern += "/atoll-embedded-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) return errno_error("make a home in " + pattern);
  // The server gives up root and has to find its way in.
  if (::chmod(pattern.c_str(), 0755) != 0) return errno_error("chmod " + pattern);
  return pattern;
}

std::string shared_dir(const std::string& option, const char* variable, const char* below) {
  if (!option.empty()) return option;
  if (std::string named = environment(variable); !named.empty()) return named;
  const std::string home = environment("ATOLL_HOME");
  return (home.empty() ? "/var/lib/atoll" : home) + "/" + below;
}

bool names(const std::vector<std::string>& arguments, const std::string& option) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& each) {
    return each == option || each.starts_with(option + "=");
  });
}

std::vector<std::string> arguments_of(const EmbeddedOptions& options, const std::string& program,
                                      const std::string& home) {
  std::vector<std::string> out = {program, "serve", "--home", home, "--with-stdin"};
  const std::pair<const char*, const char*> defaults[] = {{"--listen", "127.0.0.1:0"},
                                                          {"--metrics-listen", "off"},
                                                          {"--pool-ready", "1"},
                                                          {"--pool-skeletons", "0"},
                                                          {"--log-level", "warn"}};
  for (const auto& [name, value] : defaults) {
    if (names(options.arguments, name)) continue;
    out.emplace_back(name);
    out.emplace_back(value);
  }
  out.insert(out.end(), options.arguments.begin(), options.arguments.end());
  return out;
}

// Ours, but for what would point the server, or whoever it starts, to another one.
std::vector<std::string> environment_of(const EmbeddedOptions& options) {
  const std::string templates = shared_dir(options.templates, "ATOLL_TEMPLATES", "templates");
  const std::string tools = shared_dir(options.tools, "ATOLL_TOOLS", "tools");
  std::vector<std::string> out = {"ATOLL_TEMPLATES=" + templates, "ATOLL_TOOLS=" + tools};
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view text = *each;
    const std::string_view name = text.substr(0, text.find('='));
    if (name != "ATOLL_TEMPLATES" && name != "ATOLL_TOOLS" && name != "ATOLL_HOME" &&
        !name.starts_with("E2B_"))
      out.emplace_back(text);
  }
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

struct Pipe {
  int read = -1;
  int write = -1;
  ~Pipe() {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
  static int release(int& fd) { return std::exchange(fd, -1); }
  atl::Result<void> open() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return errno_error("pipe");
    read = fds[0];
    write = fds[1];
    return {};
  }
};

// What posix_spawn is told. Signals are as a new program expects them.
struct SpawnPlan {
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    sigset_t all;
    sigset_t none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setflags(&attributes,
                               POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

std::string export_of(const std::string& text, const std::string& name) {
  const std::string prefix = "export " + name + "=";
  const std::size_t at = text.find(prefix);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + prefix.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

atl::Result<std::unique_ptr<Child>> Child::start(const EmbeddedOptions& options) {
  if (::geteuid() != 0) {
    return make_error(Errc::permission_denied,
                      "the embedded engine needs root. FIX: run the program as root, or start a "
                      "server (`atoll up`) and use Client::from_environment()");
  }
  ATOLL_TRY_ASSIGN(const std::string program, find_atoll(options.program));
  std::unique_ptr<Child> child(new Child);
  child->own_home_ = options.home.empty();
  if (child->own_home_) {
    ATOLL_TRY_ASSIGN(child->home_, make_home());
  } else {
    child->home_ = options.home;
    std::error_code ec;
    fs::create_directories(child->home_, ec);
    if (ec) return errno_error("make the home " + child->home_, ec.value());
  }
  child->log_ = options.log_file.empty() ? child->home_ + "/embedded.log" : options.log_file;
  child->arguments_ = arguments_of(options, program, child->home_);
  child->variables_ = environment_of(options);
  int out = -1;
  ATOLL_TRY(child->spawn(out));
  auto read = child->read_exports(out, options.start_time);
  ::close(out);
  if (!read.ok()) return std::move(read).error();
  return child;
}

atl::Result<void> Child::spawn(int& out) {
  Pipe life;
  Pipe said;
  ATOLL_TRY(life.open());
  ATOLL_TRY(said.open());
  SpawnPlan plan;
  ::posix_spawn_file_actions_adddup2(&plan.actions, life.read, 0);
  ::posix_spawn_file_actions_adddup2(&plan.actions, said.write, 1);
  ::posix_spawn_file_actions_addopen(&plan.actions, 2, log_.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
  ::posix_spawn_file_actions_addclosefrom_np(&plan.actions, 3);
  const int failed = ::posix_spawn(&pid_, arguments_[0].c_str(), &plan.actions, &plan.attributes,
                                   pointers(arguments_).data(), pointers(variables_).data());
  if (failed != 0) {
    pid_ = -1;
    return errno_error("start " + arguments_[0], failed);
  }
  lifeline_ = Pipe::release(life.write);
  out = Pipe::release(said.read);
  return {};
}

atl::Result<void> Child::read_exports(int out, std::chrono::seconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  std::string text;
  char buffer[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd ready{out, POLLIN, 0};
    const int n = ::poll(&ready, 1, int(std::max<std::int64_t>(left.count(), 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return make_error(Errc::deadline_exceeded,
                        "the embedded engine did not start in time: " + last_words());
    }
    const ssize_t got = ::read(out, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || text.size() > kMaxExports) break;
    text.append(buffer, std::size_t(got));
  }
  url_ = export_of(text, "E2B_API_URL");
  key_ = export_of(text, "E2B_API_KEY");
  if (url_.empty() || key_.empty())
    return make_error(Errc::unavailable, "the embedded engine did not start: " + last_words());
  return {};
}

std::string Child::last_words() const {
  std::ifstream in(log_, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (text.size() > kLastWords) text.erase(0, text.size() - kLastWords);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "it said nothing" : text;
}

bool Child::end() {
  if (lifeline_ >= 0) ::close(std::exchange(lifeline_, -1));
  if (pid_ <= 0) return true;
  const int fd = int(::syscall(SYS_pidfd_open, pid_, 0));
  pollfd ended{fd, POLLIN, 0};
  const auto until = std::chrono::steady_clock::now() + kEndTime;
  int n = 0;
  do {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    n = fd < 0 ? 0 : ::poll(&ended, 1, int(std::max<std::int64_t>(left.count(), 0)));
  } while (n < 0 && errno == EINTR);
  const bool hangs = n <= 0 && fd >= 0;
  if (hangs) ::kill(pid_, SIGKILL);
  int status = 0;  // stays so where somebody else waited for it
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  if (fd >= 0) ::close(fd);
  pid_ = -1;
  return !hangs && status == 0;
}

void Child::end_leftovers() {
  int out = -1;
  if (!spawn(out).ok()) return;
  (void)end();  // there is nothing more to be done
  ::close(out);
}

Child::~Child() {
  const bool well = end();
  if (!own_home_ || home_.empty()) return;
  if (!well) end_leftovers();
  std::error_code ignored;  // nothing depends on it
  fs::remove_all(home_, ignored);
}

}  // namespace atl::sdk
