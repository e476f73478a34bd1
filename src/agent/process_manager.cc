#include "agent/process_manager.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/paths.h"

namespace atl::agent {
namespace {

struct PipePair {
  Fd read;
  Fd write;
};

Result<PipePair> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return errno_error("pipe");
  return PipePair{Fd(fds[0]), Fd(fds[1])};
}

std::string command_line(const ::process::ProcessConfig& config) {
  std::string text = config.cmd();
  for (const std::string& argument : config.args()) text += " " + argument;
  return text;
}

bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

Result<void> check_config(const ::process::ProcessConfig& config) {
  if (has_nul(config.cmd()) || std::any_of(config.args().begin(), config.args().end(), has_nul)) {
    return make_error(Errc::invalid_argument,
                      "error starting process: the command must not hold a NUL byte");
  }
  for (const auto& [name, value] : config.envs()) {
    if (name.empty() || has_nul(name) || has_nul(value) || name.find('=') != std::string::npos) {
      return make_error(Errc::invalid_argument,
                        "error starting process: not a possible variable: " + name);
    }
  }
  return {};
}

Error not_found(const Selector& selector) {
  if (const std::uint32_t* pid = std::get_if<std::uint32_t>(&selector)) {
    return make_error(Errc::not_found, "process with pid " + std::to_string(*pid) + " not found");
  }
  return make_error(Errc::not_found,
                    "process with tag " + std::get<std::string>(selector) + " not found");
}

template <class T>
bool matches(const Selector& selector, pid_t pid, const T& tag) {
  if (const std::uint32_t* wanted = std::get_if<std::uint32_t>(&selector))
    return std::uint32_t(pid) == *wanted;
  return tag && *tag == std::get<std::string>(selector);
}

}  // namespace

ProcessManager::ProcessManager(net::asio::io_context& io, Reaper& reaper, LogRing* logs)
    : io_(io), reaper_(reaper), logs_(logs), purge_timer_(io) {}

Result<void> ProcessManager::make_pipes(const ProcessSpec& spec, SpawnSpec& child,
                                        Process::Pipes& ours, std::vector<Fd>& theirs) const {
  const auto give = [&theirs](Fd fd) {
    theirs.push_back(std::move(fd));
    return theirs.back().get();
  };
  if (spec.pty) {
    const auto owner = ::geteuid() == 0 ? std::optional(spec.user.uid) : std::nullopt;
    ATOLL_TRY_ASSIGN(PtyPair pair, open_pty(*spec.pty, owner));
    child.in = child.out = child.err = give(std::move(pair.slave));
    child.terminal = Terminal::controlling;
    ours.master = std::move(pair.master);
    return {};
  }
  if (spec.stdin_pipe) {
    ATOLL_TRY_ASSIGN(PipePair in, make_pipe());
    child.in = give(std::move(in.read));
    ours.in = std::move(in.write);
  } else {
    Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null) return errno_error("open /dev/null");
    child.in = give(std::move(null));
  }
  ATOLL_TRY_ASSIGN(PipePair out, make_pipe());
  ATOLL_TRY_ASSIGN(PipePair err, make_pipe());
  child.out = give(std::move(out.write));
  child.err = give(std::move(err.write));
  ours.out = std::move(out.read);
  ours.err = std::move(err.read);
  return {};
}

Result<ProcessManager::Started> ProcessManager::start(ProcessSpec spec) {
  ATOLL_TRY(check_config(spec.config));
  struct stat info{};
  if (::stat(spec.cwd.c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
    return make_error(Errc::invalid_argument, "cwd '" + spec.cwd + "' does not exist");
  }
  const std::string what =
      (spec.pty ? "error starting pty with command '" : "error starting process '") +
      command_line(spec.config).substr(0, 4096) + "'";
  SpawnSpec child;
  child.argv.push_back(spec.config.cmd());
  child.argv.insert(child.argv.end(), spec.config.args().begin(), spec.config.args().end());
  child.env = std::move(spec.env);
  child.cwd = spec.cwd;
  // An agent that is not root (a developer's) cannot become anybody else, and runs everything as
  // itself.
  if (::geteuid() == 0)
    child.credentials = Credentials{spec.user.uid, spec.user.gid, spec.user.groups};
  Process::Pipes ours;
  std::vector<Fd> theirs;
  auto piped = make_pipes(spec, child, ours, theirs);
  if (!piped.ok()) return std::move(piped).error().with(what);
  auto pid = spawn(child);
  if (!pid.ok()) {
    if (logs_ != nullptr) logs_->add(LogRing::Level::error, what + ": " + pid.error().message);
    return std::move(pid).error().with(what);
  }
  theirs.clear();  // or we would never see the end of the output

  forget_old(*pid, spec.tag);
  Process::Hooks hooks;
  hooks.finished = [this](Process& process) { on_finished(process); };
  auto process = std::make_shared<Process>(io_, *pid, std::move(spec.config), std::move(spec.tag),
                                           std::move(ours), std::move(hooks));
  processes_[*pid] = process;
  log_start(*process, spec.user.name);
  reaper_.watch(*pid, [process](int wait_status) { process->on_exit(wait_status); });
  if (spec.kill_at) process->kill_after(*spec.kill_at - std::chrono::steady_clock::now());
  auto subscription = process->subscribe();
  process->start_reading();
  return Started{process, std::move(subscription)};
}

std::vector<std::shared_ptr<Process>> ProcessManager::list() const {
  std::vector<std::shared_ptr<Process>> out;
  for (const auto& [pid, process] : processes_) {
    if (process->running()) out.push_back(process);
  }
  return out;
}

Result<std::shared_ptr<Process>> ProcessManager::find(const Selector& selector) const {
  for (const auto& [pid, process] : processes_) {
    if (process->running() && matches(selector, pid, process->tag())) return process;
  }
  return not_found(selector);
}

Result<ProcessManager::Attached> ProcessManager::attach(const Selector& selector) {
  if (auto running = find(selector); running.ok()) {
    return Attached{(*running)->pid(), (*running)->subscribe()};
  }
  for (const auto& [pid, process] : processes_) {
    if (matches(selector, pid, process->tag())) return Attached{pid, process->subscribe()};
  }
  const auto now = std::chrono::steady_clock::now();
  for (const Retained& ended : retained_) {
    if (ended.until > now && matches(selector, ended.pid, ended.tag))
      return Attached{ended.pid, ended};
  }
  return not_found(selector);
}

void ProcessManager::forget_old(pid_t pid, const std::optional<std::string>& tag) {
  std::erase_if(retained_,
                [&](const Retained& old) { return old.pid == pid || (tag && old.tag == tag); });
}

void ProcessManager::log_start(const Process& process, const std::string& user) const {
  if (logs_ == nullptr) return;
  LogFields fields{{"pid", std::to_string(process.pid())},
                   {"cmd", command_line(process.config()).substr(0, kLogField)},
                   {"user", user}};
  if (process.tag()) fields["tag"] = *process.tag();
  logs_->add(LogRing::Level::info, process.is_pty() ? "pty started" : "process started",
             std::move(fields));
}

void ProcessManager::on_finished(Process& process) {
  if (logs_ != nullptr) {
    logs_->add(LogRing::Level::info, process.is_pty() ? "pty ended" : "process ended",
               {{"pid", std::to_string(process.pid())},
                {"cmd", command_line(process.config()).substr(0, kLogField)},
                {"exit_code", std::to_string(process.end().exit_code)},
                {"status", process.end().status}});
  }
  const auto found = processes_.find(process.pid());
  // Its pid may belong to a newer process by now.
  if (found == processes_.end() || found->second.get() != &process) return;
  if (retained_.size() >= kMaxRetained) retained_.erase(retained_.begin());
  retained_.push_back(
      {process.pid(), process.tag(), process.end(), std::chrono::steady_clock::now() + kRetention});
  processes_.erase(found);
  if (retained_.size() == 1) purge();
}

void ProcessManager::purge() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(retained_, [now](const Retained& old) { return old.until <= now; });
  if (retained_.empty()) return;
  purge_timer_.expires_at(retained_.front().until);
  purge_timer_.async_wait([this](const boost::system::error_code& ec) {
    if (!ec) purge();
  });
}

}  // namespace atl::agent
