#include "agent/hooks.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>

#include "agent/file_io.h"
#include "agent/interpreter/event.h"
#include "agent/interpreter/process_tree.h"
#include "agent/process_end.h"
#include "agent/spawn.h"

namespace atl::agent {
namespace {

namespace asio = net::asio;
using interpreter::Clock;
using Descriptor = asio::posix::stream_descriptor;

constexpr std::size_t kMaxHooks = 64;
constexpr std::size_t kMaxWords = 2048;  // of its output in the log
constexpr std::chrono::seconds kEndTime{2};

struct Hook {
  explicit Hook(asio::io_context& io) : output(io) {}
  Descriptor output;
  std::string said;
  bool ended = false;
  int status = 0;
  interpreter::Event changed;
};

bool is_roots_alone(const struct stat& info) {
  return info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::vector<std::string> find_hooks(const std::string& directory, LogRing& logs) {
  std::vector<std::string> names;
  struct stat info{};
  DIR* opened = ::opendir(directory.c_str());
  if (opened == nullptr) return names;
  if (::fstat(::dirfd(opened), &info) != 0 || !is_roots_alone(info)) {
    logs.add(LogRing::Level::warn, "hooks are not run, others than root can change " + directory);
  } else {
    while (const dirent* entry = ::readdir(opened)) {
      if (entry->d_name[0] != '.' && names.size() < kMaxHooks) names.emplace_back(entry->d_name);
    }
  }
  ::closedir(opened);
  std::sort(names.begin(), names.end());
  std::erase_if(names, [&](const std::string& name) {
    const std::string path = directory + "/" + name;
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || (info.st_mode & S_IXUSR) == 0)
      return true;
    if (is_roots_alone(info)) return false;
    logs.add(LogRing::Level::warn, "a hook is not run, others than root can change " + path);
    return true;
  });
  return names;
}

// Read to its end, so that the hook never waits for us; only the beginning is kept.
net::Task<void> listen(std::shared_ptr<Hook> hook) {
  char buffer[4096];
  for (;;) {
    auto [ec, n] = co_await hook->output.async_read_some(asio::buffer(buffer),
                                                         asio::as_tuple(asio::use_awaitable));
    if (ec) co_return;
    hook->said.append(buffer, std::min(n, kMaxWords - hook->said.size()));
  }
}

Result<pid_t> start(const std::string& path, const std::vector<std::string>& env, Hook& hook) {
  SpawnSpec child;
  child.argv = {path};
  child.env = env;
  child.cwd = "/";
  child.terminal = Terminal::session;
  Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int ends[2];
  if (!null || ::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe");
  Fd writing(ends[1]);
  hook.output.assign(ends[0]);
  child.in = null.get();
  child.out = child.err = writing.get();
  return spawn(child);
}

net::Task<std::string> run_hook(asio::io_context& io, Reaper& reaper, const std::string& path,
                                const std::vector<std::string>& env, Clock::duration time) {
  const auto hook = std::make_shared<Hook>(io);
  const auto pid = start(path, env, *hook);
  if (!pid.ok()) co_return pid.error().message;
  reaper.watch(*pid, [hook](int status) {
    hook->ended = true;
    hook->status = status;
    hook->changed.notify();
  });
  asio::co_spawn(io, listen(hook), asio::detached);
  auto waiting = interpreter::until(hook->changed, [&] { return hook->ended; }, time);
  const bool in_time = co_await std::move(waiting);
  if (!in_time) {
    interpreter::kill_tree(*pid);
    auto ending = interpreter::until(hook->changed, [&] { return hook->ended; }, kEndTime);
    co_await std::move(ending);
  }
  boost::system::error_code ignored;  // closing cannot fail in a way that matters
  hook->output.close(ignored);
  std::string outcome = in_time ? end_status(hook->status).status : "ended after its time";
  if (!hook->said.empty()) outcome += ": " + hook->said;
  co_return outcome;
}

}  // namespace

net::Task<void> run_hooks(asio::io_context& io, Reaper& reaper, LogRing& logs, Hooks hooks) {
  const auto begin = Clock::now();
  for (const std::string& name : find_hooks(hooks.directory, logs)) {
    const std::string path = hooks.directory + "/" + name;
    const auto left = hooks.all - (Clock::now() - begin);
    if (left <= Clock::duration::zero()) {
      logs.add(LogRing::Level::warn, "no time is left for the hook " + path);
      continue;
    }
    auto running =
        run_hook(io, reaper, path, hooks.env, std::min<Clock::duration>(hooks.each, left));
    const std::string outcome = co_await std::move(running);
    const bool fine = outcome.starts_with("exit status 0");
    logs.add(fine ? LogRing::Level::info : LogRing::Level::warn, "hook " + path + ": " + outcome,
             {{"source", "hook"}});
  }
}

}  // namespace atl::agent
