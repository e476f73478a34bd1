// Kernel: one running runner and the protocol with it (kernels/protocol.md).
//
// Life: launched -> started (`start` sent, `ready` came) -> any number of runs -> dead. It is dead
// when its process was reaped, when its socket is at an end, when it sent something that is no
// message, or when it was killed; what it has started is then killed too. It keeps itself alive by
// its reading coroutines. Touched by the agent's one thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <string>

#include "agent/file_io.h"
#include "agent/interpreter/event.h"
#include "agent/interpreter/lines.h"
#include "agent/interpreter/run.h"

namespace atl::agent::interpreter {

class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  struct Ends {
    Fd socket;
    Fd out;  // pipes of its descriptors 1 and 2; none if it was forked
    Fd err;
  };

  Kernel(net::asio::io_context& io, pid_t pid, Ends ends);

  // Begins to read.
  void begin();
  // The reaper's word.
  void on_exit(int wait_status);
  // Told once, with what is known of its end, when its process was reaped.
  std::function<void(int wait_status)> reaped;

  pid_t pid() const { return pid_; }
  bool alive() const { return !dead_; }
  bool start_sent() const { return start_sent_; }
  bool ready() const { return ready_; }
  bool warm_sent() const { return warm_sent_; }
  // It did its `warm`, or a run, which does as much.
  bool warmed() const { return warmed_; }
  // Whether a run is under way; false after its `done`.
  bool busy() const { return run_ != nullptr; }
  // The last run asked for another kernel in place of this one.
  bool wants_restart() const { return wants_restart_; }
  // What it said on its pipes before it was ready.
  const std::string& first_words() const { return first_words_; }
  // Anything of the above changed, or the run is unwanted.
  Event& changed() { return changed_; }

  void send_start(const std::vector<std::string>& env, std::string_view cwd);
  void send_warm();
  // A copy of another's memory: it reseeds before its next run. `identity` becomes part of its
  // variables.
  void send_forked(std::string_view seed, const std::map<std::string, std::string>& identity);
  // Not while busy. `notice` is told to the client first.
  void execute(std::shared_ptr<Run> run, std::string notice);
  // SIGINT, during a run only.
  void interrupt();
  // Ends it and everything it started, now.
  void kill();

 private:
  using Descriptor = net::asio::posix::stream_descriptor;
  struct Pipe {
    std::shared_ptr<Descriptor> from;
    TextJoin join;
  };

  void send(std::string line);
  static net::Task<void> send_rest(std::shared_ptr<Kernel> self);
  static net::Task<void> read_loop(std::shared_ptr<Kernel> self);
  static net::Task<void> pipe_loop(std::shared_ptr<Kernel> self, Output output);
  static net::Task<void> wait_for_room(std::shared_ptr<Kernel> self);
  void handle_lines();
  void handle(std::string_view line);
  void on_pipe(Output output, std::string_view bytes);
  void drain_pipes();
  void drain_socket();
  void finish_run(bool restart);
  void die();
  Pipe& pipe(Output output) { return output == Output::out ? out_ : err_; }

  net::asio::io_context& io_;
  pid_t pid_;
  net::asio::local::stream_protocol::socket socket_;
  Pipe out_;
  Pipe err_;
  LineBuffer lines_;
  JsonMembers scratch_;
  std::string unsent_;
  bool sending_ = false;
  bool exited_ = false;
  bool dead_ = false;
  bool start_sent_ = false;
  bool ready_ = false;
  bool warm_sent_ = false;
  bool warmed_ = false;
  bool wants_restart_ = false;
  std::string first_words_;
  std::shared_ptr<Run> run_;
  std::string notice_;
  Event changed_;
};

}  // namespace atl::agent::interpreter
