// Theory of operation. A command runs on one connection that carries its output (ProcessStream);
// its input goes by calls of their own at the same time, or a program that writes before it has
// read everything would wait for ever. time_limit.h ends it when it takes too long.
#include "client/commands.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/ids.h"
#include "client/output.h"
#include "client/process_stream.h"
#include "client/time_limit.h"

namespace atl::client {
namespace {

namespace asio = net::asio;

constexpr std::size_t kInputPiece = 256 << 10;
// ---- input ----

net::Task<void> send_all(Inside inside, std::uint32_t pid, std::string input) {
  for (std::size_t at = 0; at < input.size(); at += kInputPiece) {
    auto sending = send_stdin(inside, pid, input.substr(at, kInputPiece));
    // A program that ended, or that closed its stdin, needs no more.
    if (!(co_await std::move(sending)).ok()) co_return;
  }
  auto closing = close_stdin(inside, pid);
  (void)co_await std::move(closing);
}

// The input on its way. Given up when this goes away.
class Feed {
 public:
  Feed(const asio::any_io_executor& executor, Inside inside, std::uint32_t pid, std::string input)
      : state_(std::make_shared<State>(executor)) {
    asio::co_spawn(
        executor, send_all(std::move(inside), pid, std::move(input)),
        asio::bind_cancellation_slot(state_->cancel.slot(), [state = state_](std::exception_ptr) {
          state->done = true;
          state->over.cancel();
        }));
  }
  ~Feed() { give_up(); }
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  // Returns when nothing of it is under way any more.
  net::Task<void> stop() {
    give_up();
    while (!state_->done)
      (void)co_await state_->over.async_wait(asio::as_tuple(asio::use_awaitable));
  }

 private:
  struct State {
    explicit State(asio::any_io_executor executor)
        : over(std::move(executor), asio::steady_timer::time_point::max()) {}
    bool done = false;
    asio::steady_timer over;  // cancelled when it is done
    asio::cancellation_signal cancel;
  };
  void give_up() {
    if (!state_->done) state_->cancel.emit(asio::cancellation_type::terminal);
  }
  std::shared_ptr<State> state_;
};

// ---- the command ----

struct Followed {
  OutputKeeper out;
  OutputKeeper err;
  Finished finished;
};

// To the end of the process, or of its time.
net::Task<Result<void>> follow(ProcessStream& stream, const CommandEvents& events,
                               Followed& followed) {
  for (;;) {
    auto reading = stream.next();
    auto event = co_await std::move(reading);
    if (!event.ok()) co_return std::move(event).error();
    switch (event->kind) {
      case ProcessEvent::Kind::out:
        followed.out.add(event->bytes);
        if (events.on_stdout) events.on_stdout(event->bytes);
        break;
      case ProcessEvent::Kind::err:
        followed.err.add(event->bytes);
        if (events.on_stderr) events.on_stderr(event->bytes);
        break;
      case ProcessEvent::Kind::terminal:
        break;  // it has none
      case ProcessEvent::Kind::end:
        followed.finished.exit_code = event->exit_code;
        followed.finished.status = std::move(event->status);
        co_return Result<void>();
    }
    if (events.after_event) {
      auto waiting = events.after_event();
      if (!co_await std::move(waiting))
        co_return make_error(Errc::canceled, "the listener had enough");
    }
  }
}

}  // namespace

Command shell(std::string line) {
  Command command;
  command.program = "/bin/bash";
  command.arguments = {"-l", "-c", std::move(line)};
  return command;
}

net::Task<Result<Finished>> run_command(Inside inside, Command command, CommandEvents events) {
  const auto executor = co_await asio::this_coro::executor;
  const std::chrono::milliseconds limit = command.timeout;
  const std::size_t keep = command.keep;
  std::optional<std::string> input = std::exchange(command.input, std::nullopt);
  Marked marked{command.user, command.mark.empty() ? random_hex(16) : command.mark, 0};
  StartOptions options;
  options.stdin_pipe = input.has_value();
  if (limit > limit.zero()) options.mark = marked.mark;
  command.timeout = agent_deadline(limit);
  auto starting = ProcessStream::start(inside, std::move(command), std::move(options));
  ATOLL_CO_TRY_ASSIGN(ProcessStream stream, co_await std::move(starting));
  marked.pid = stream.pid();
  std::optional<TimeLimit> time;
  if (limit > limit.zero()) time.emplace(executor, inside, std::move(marked), limit, stream);
  if (events.on_start) events.on_start(stream.pid());
  std::optional<Feed> feeding;
  if (input) feeding.emplace(executor, inside, stream.pid(), std::move(*input));

  Followed followed{OutputKeeper(keep), OutputKeeper(keep), {}};
  auto following = follow(stream, events, followed);
  const auto outcome = co_await std::move(following);
  if (feeding) {
    auto stopping = feeding->stop();
    co_await std::move(stopping);
  }
  Finished finished = std::move(followed.finished);
  if (time) {
    auto finishing = time->finish();
    ATOLL_CO_TRY_ASSIGN(finished.timed_out, co_await std::move(finishing));
  }
  if (!outcome.ok() && !finished.timed_out) co_return outcome.error();
  finished.out = std::move(followed.out).finish();
  finished.err = std::move(followed.err).finish();
  if (finished.timed_out) {
    finished.exit_code = -1;
    finished.status = "signal: killed";
  }
  co_return finished;
}

}  // namespace atl::client
