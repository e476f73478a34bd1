#include "agent/start_command.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <chrono>

#include "agent/paths.h"

namespace atl::agent {
namespace {

// Cuts output into lines; a line without end is cut at the length of a message.
class Lines {
 public:
  Lines(LogRing& logs, const char* stream, pid_t pid) : logs_(logs), stream_(stream), pid_(pid) {}
  ~Lines() { flush(); }

  void add(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::size_t room = kLogMessage - text_.size();
      const std::string_view piece = bytes.substr(0, std::min(end, room));
      text_ += piece;
      bytes.remove_prefix(piece.size());
      const bool ended = !bytes.empty() && bytes.front() == '\n';
      if (ended) bytes.remove_prefix(1);
      if (ended || text_.size() >= kLogMessage) flush();
    }
  }

 private:
  void flush() {
    if (!text_.empty())
      logs_.add(LogRing::Level::info, text_,
                {{"source", kStartTag}, {"stream", stream_}, {"pid", std::to_string(pid_)}});
    text_.clear();
  }

  LogRing& logs_;
  const char* stream_;
  pid_t pid_;
  std::string text_;
};

net::Task<void> keep_output(std::unique_ptr<Subscription> subscription, pid_t pid, LogRing& logs) {
  Lines out(logs, "stdout", pid);
  Lines err(logs, "stderr", pid);
  for (;;) {
    const Event event = co_await subscription->next(std::chrono::hours(1));
    if (!event) continue;
    out.add(event->event().data().stdout());
    err.add(event->event().data().stderr());
    if (event->event().has_end()) co_return;
  }
}

Result<ProcessManager::Started> begin(const std::string& command, const AgentState& state,
                                      ProcessManager& processes, const std::string& path) {
  ProcessSpec spec;
  ATOLL_TRY_ASSIGN(spec.user, lookup_user(state.default_user()));
  ATOLL_TRY_ASSIGN(spec.cwd, resolve_path("", spec.user, state.default_workdir()));
  spec.config.set_cmd("/bin/bash");
  for (const char* argument : {"-l", "-c"}) spec.config.add_args(argument);
  spec.config.add_args(command);
  spec.env = process_environment(state, path, spec.user, spec.config.envs());
  spec.tag = kStartTag;
  spec.stdin_pipe = false;
  return processes.start(std::move(spec));
}

}  // namespace

void run_start_command(net::asio::io_context& io, const std::string& command,
                       const AgentState& state, ProcessManager& processes, const std::string& path,
                       LogRing& logs) {
  auto started = begin(command, state, processes, path);
  if (!started.ok()) {
    logs.add(LogRing::Level::error, "start command failed: " + started.error().message,
             {{"source", kStartTag}});
    return;
  }
  const pid_t pid = started->process->pid();
  net::asio::co_spawn(io, keep_output(std::move(started->subscription), pid, logs),
                      net::asio::detached);
}

}  // namespace atl::agent
