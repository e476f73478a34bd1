// Process: one program started through the agent, its input, and the fan-out of its output to
// subscribers.
//
// Life: running -> reaped, output still open (a grandchild holds it) -> finished. The end event
// goes out when the process was reaped and its output is at an end; a process that was killed on
// request does not wait for its output. It keeps itself alive by its reader coroutines. Touched by
// the agent's one thread only.
//
// Fan-out: every chunk goes to every subscriber of that moment, in order. A subscriber that does
// not keep up (kQueueLimit events) stops the reading, so the pipe fills and the program waits; with
// no subscriber, output is read and dropped.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/file_io.h"
#include "agent/process.pb.h"
#include "agent/process_end.h"
#include "agent/pty.h"
#include "net/task.h"

namespace atl::agent {

// An event as it goes over the wire; shared by all subscribers. ConnectResponse has the same shape
// on the wire.
using Event = std::shared_ptr<const ::process::StartResponse>;

::process::StartResponse end_message(const EndStatus& end);

inline constexpr std::size_t kQueueLimit = 64;
inline constexpr std::chrono::milliseconds kBeat{1000};
inline constexpr std::chrono::milliseconds kBeatSlack{500};
inline constexpr std::size_t kPipeRead = 32 * 1024;
inline constexpr std::size_t kPtyRead = 16 * 1024;

class Process;

// One stream that follows a process. Leaves the process when destroyed.
class Subscription {
 public:
  explicit Subscription(std::shared_ptr<Process> process);
  ~Subscription();
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

  // The next event; null if there was none for `patience`. After the end event there are no more.
  net::Task<Event> next(std::chrono::steady_clock::duration patience);

 private:
  friend class Process;
  std::shared_ptr<Process> process_;
  std::deque<Event> queue_;
  net::asio::steady_timer wake_;
};

class Process : public std::enable_shared_from_this<Process> {
 public:
  struct Pipes {
    Fd in;   // write end of its stdin; none if that is /dev/null
    Fd out;  // read ends
    Fd err;
    Fd master;  // instead of the three, for a terminal
  };
  struct Hooks {
    std::function<void(Process&)> reaped;    // its pid means nothing any more
    std::function<void(Process&)> finished;  // the end event is out
  };

  Process(net::asio::io_context& io, pid_t pid, ::process::ProcessConfig config,
          std::optional<std::string> tag, Pipes pipes, Hooks hooks);

  // Begins to read the output; after the first subscription was made, so that it misses nothing.
  void start_reading();
  // Sends SIGKILL when it has had that much time, whoever is still listening. Time in which the
  // sandbox was frozen does not count: the clock runs in beats, and a beat that took much longer
  // than it should is given again.
  void kill_after(std::chrono::steady_clock::duration time);
  // The reaper's word.
  void on_exit(int wait_status);

  pid_t pid() const { return pid_; }
  const std::optional<std::string>& tag() const { return tag_; }
  const ::process::ProcessConfig& config() const { return config_; }
  bool is_pty() const { return master_ != nullptr; }
  bool running() const { return running_; }
  bool finished() const { return finished_; }
  const EndStatus& end() const { return end_; }  // once it is not running
  std::size_t subscribers() const { return subscribers_.size(); }

  std::unique_ptr<Subscription> subscribe();
  // All bytes, in turn with other writers. Errors: internal.
  net::Task<Result<void>> write_stdin(std::string bytes);
  net::Task<Result<void>> write_pty(std::string bytes);
  // After the writes that are under way. Nothing to do if stdin is closed or never was there.
  // Errors: unknown for a terminal.
  net::Task<Result<void>> close_stdin();
  // Errors: internal if it has no terminal.
  Result<void> resize(WindowSize size);
  // To this process alone. Errors: internal.
  Result<void> send_signal(int signal);

 private:
  friend class Subscription;
  enum class Output { out, err, pty };
  using Descriptor = net::asio::posix::stream_descriptor;
  class Turn;

  std::shared_ptr<Descriptor> adopt(Fd fd);
  static net::Task<void> read_loop(std::shared_ptr<Process> self, std::shared_ptr<Descriptor> from,
                                   Output output);
  void drain(Descriptor& from, Output output);
  // Reads once. False: end of output.
  bool read_once(Descriptor& from, Output output, std::size_t& got);
  bool congested() const;
  void publish(Event event);
  void publish_bytes(Output output, std::string bytes);
  void finish_if_done();
  void finish();
  net::Task<Result<void>> write_all(std::shared_ptr<Descriptor> to, std::string_view bytes);

  net::asio::io_context& io_;
  pid_t pid_;
  ::process::ProcessConfig config_;
  std::optional<std::string> tag_;
  Hooks hooks_;
  std::shared_ptr<Descriptor> in_;
  std::shared_ptr<Descriptor> out_;
  std::shared_ptr<Descriptor> err_;
  std::shared_ptr<Descriptor> master_;
  int open_outputs_ = 0;
  bool running_ = true;
  bool finished_ = false;
  bool killed_ = false;  // on request: do not wait for the output's end
  EndStatus end_;
  std::list<Subscription*> subscribers_;
  net::asio::steady_timer room_;      // cancelled when a subscriber has room again
  net::asio::steady_timer deadline_;  // the end of a beat
  std::chrono::steady_clock::duration time_left_{0};
  std::list<int> turns_;               // writers in order; the first one writes
  net::asio::steady_timer turn_over_;  // cancelled when the first writer is done
};

}  // namespace atl::agent
