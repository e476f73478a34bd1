// Commands, processes in the background, terminals.
#include <atoll/process.h>

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/ids.h"
#include "client/output.h"
#include "client/process_stream.h"
#include "client/time_limit.h"
#include "sdk/state.h"

namespace atl::sdk {
namespace {

constexpr std::size_t kInputPiece = 256 << 10;  // of what one call carries

CommandResult result_of(int exit_code, const client::Output& out, const client::Output& err,
                        bool timed_out) {
  CommandResult result;
  result.exit_code = exit_code;
  result.out = out.text();
  result.err = err.text();
  result.omitted_out = out.omitted;
  result.omitted_err = err.omitted;
  result.timed_out = timed_out;
  return result;
}

client::Command command_of(std::string line, CommandOptions& options) {
  client::Command command = client::shell(std::move(line));
  command.envs = std::move(options.envs);
  command.directory = std::move(options.directory);
  command.user = std::move(options.user);
  command.input = std::move(options.input);
  command.timeout = options.timeout;
  command.keep = options.keep;
  return command;
}

using Listener = std::function<void(std::string_view)>;

// ---- a command that is waited for ----

struct Heard {
  std::function<void()> event;
  bool threw = false;
};

Listener note(Heard& heard, Listener listener) {
  if (!listener) return {};
  return [&heard, listener = std::move(listener)](std::string_view text) {
    heard.event = [listener, text = std::string(text)] { listener(text); };
  };
}

net::Task<bool> tell(std::shared_ptr<Io> io, std::shared_ptr<Mailbox> box, Heard& heard) {
  if (!heard.event) co_return true;
  auto delivering = deliver(std::move(io), std::move(box), std::exchange(heard.event, {}));
  heard.threw = !co_await std::move(delivering);
  co_return !heard.threw;
}

net::Task<Result<CommandResult>> run_line(std::weak_ptr<Io> weak, client::Inside inside,
                                          client::Command command, CommandEvents listeners,
                                          std::shared_ptr<Mailbox> box) {
  Heard heard;
  client::CommandEvents events;
  if (box) {
    events.on_stdout = note(heard, std::move(listeners.on_stdout));
    events.on_stderr = note(heard, std::move(listeners.on_stderr));
    events.after_event = [&heard, weak, box] { return tell(weak.lock(), box, heard); };
  }
  auto running = client::run_command(std::move(inside), std::move(command), std::move(events));
  auto finished = co_await std::move(running);
  if (heard.threw) co_return callback_threw();
  if (!finished.ok()) co_return public_error(finished.error());
  co_return result_of(finished->exit_code, finished->out, finished->err, finished->timed_out);
}

bool listens(const CommandEvents& events) { return events.on_stdout || events.on_stderr; }

// ---- a process that is followed in the background ----

// What the follower and the handles share.
class Follow {
 public:
  ~Follow() { finish(Error{Code::canceled, "the client went away"}); }

  void finish(Result<CommandResult> result) {
    std::vector<std::promise<Result<CommandResult>>> waiters;
    {
      std::lock_guard lock(mutex_);
      if (result_) return;
      result_.emplace(result);
      waiters.swap(waiters_);
    }
    for (auto& each : waiters) each.set_value(result);
  }

  std::future<Result<CommandResult>> wait() {
    std::promise<Result<CommandResult>> promise;
    auto future = promise.get_future();
    std::lock_guard lock(mutex_);
    if (result_) {
      promise.set_value(*result_);
    } else {
      waiters_.push_back(std::move(promise));
    }
    return future;
  }

 private:
  std::mutex mutex_;
  std::optional<Result<CommandResult>> result_;
  std::vector<std::promise<Result<CommandResult>>> waiters_;
};

struct Listeners {
  Listener out;
  Listener err;
  std::shared_ptr<Mailbox> box;  // null: nobody listens
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
};

struct Background {
  client::Inside inside;
  std::shared_ptr<client::ProcessStream> stream;
  Listeners listeners;
  std::size_t keep = 1 << 20;
  std::chrono::milliseconds timeout{0};  // from its start
  client::Marked marked;
  bool terminal = false;
};

struct Kept {
  client::OutputKeeper out;
  client::OutputKeeper err;
  int exit_code = -1;
};

net::Task<Result<void>> follow_stream(std::weak_ptr<Io> weak, Background& background, Kept& kept) {
  for (;;) {
    auto reading = background.stream->next();
    auto event = co_await std::move(reading);
    if (!event.ok()) co_return public_error(event.error());
    if (event->kind == client::ProcessEvent::Kind::end) {
      kept.exit_code = event->exit_code;
      co_return Result<void>();
    }
    const bool is_err = event->kind == client::ProcessEvent::Kind::err;
    (is_err ? kept.err : kept.out).add(event->bytes);
    const Listener& listener = is_err ? background.listeners.err : background.listeners.out;
    if (!listener) continue;
    auto delivering = deliver(weak.lock(), background.listeners.box, background.listeners.gate,
                              [listener, text = std::move(event->bytes)] { listener(text); });
    if (!co_await std::move(delivering)) co_return callback_threw();
  }
}

net::Task<Result<CommandResult>> follow_to_end(std::weak_ptr<Io> weak, Background& background) {
  const auto executor = co_await asio::this_coro::executor;
  std::optional<client::TimeLimit> time;
  if (background.timeout.count() > 0) {
    time.emplace(executor, background.inside, background.marked, background.timeout,
                 *background.stream);
  }
  Kept kept{client::OutputKeeper(background.keep), client::OutputKeeper(background.keep)};
  auto following = follow_stream(std::move(weak), background, kept);
  auto followed = co_await std::move(following);
  bool timed_out = false;
  if (time) {
    auto finishing = time->finish();
    auto finished = co_await std::move(finishing);
    if (!finished.ok()) co_return public_error(finished.error());
    timed_out = *finished;
  }
  if (!followed.ok() && !timed_out) co_return followed.error();
  co_return result_of(timed_out ? -1 : kept.exit_code, std::move(kept.out).finish(),
                      std::move(kept.err).finish(), timed_out);
}

net::Task<void> pump(std::weak_ptr<Io> weak, Background background,
                     std::shared_ptr<Follow> follow) {
  auto following = follow_to_end(std::move(weak), background);
  auto result = co_await std::move(following);
  background.stream->close();
  if (!result.ok() && background.listeners.gate->is_shut())
    result = Error{Code::canceled, "nobody listens to the process any more"};
  follow->finish(std::move(result));
}

}  // namespace

struct Process::State {
  // Waits for nobody: it may be the network thread that drops it, which callbacks need.
  ~State() {
    gate->shut();
    close();
  }
  void close() {
    asio::post(core->io()->context, [stream = stream] { stream->close(); });
  }

  std::shared_ptr<Core> core;
  client::Inside inside;
  std::uint32_t pid = 0;
  bool terminal = false;
  std::shared_ptr<client::ProcessStream> stream;  // the network thread's
  std::shared_ptr<Gate> gate;
  std::shared_ptr<Follow> follow;
};

namespace {

// The coroutines hold the core weakly: it owns them.
struct Where {
  explicit Where(const SandboxState& sandbox)
      : core(sandbox.core), io(sandbox.core->io()), inside(sandbox.inside) {}
  std::weak_ptr<Core> core;
  std::weak_ptr<Io> io;
  client::Inside inside;
};

Listeners listeners_of(Core& core, Listener out, Listener err) {
  Listeners listeners{std::move(out), std::move(err), nullptr};
  if (listeners.out || listeners.err) listeners.box = core.dispatcher();
  return listeners;
}

Result<Process> handle_of(const Where& where, const Background& background,
                          std::shared_ptr<Follow> follow) {
  const auto core = where.core.lock();
  if (!core) return Error{Code::canceled, "the client went away"};
  auto state = std::make_shared<Process::State>();
  state->core = core;
  state->inside = background.inside;
  state->pid = background.stream->pid();
  state->terminal = background.terminal;
  state->stream = background.stream;
  state->gate = background.listeners.gate;
  state->follow = std::move(follow);
  return Process(std::move(state));
}

std::shared_ptr<Follow> follow_in_background(const asio::any_io_executor& executor,
                                             const Where& where, Background background) {
  auto follow = std::make_shared<Follow>();
  asio::co_spawn(executor, pump(where.io, std::move(background), follow),
                 [](std::exception_ptr) {});
  return follow;
}

net::Task<Result<void>> feed(client::Inside inside, std::uint32_t pid, std::string input) {
  for (std::size_t at = 0; at < input.size(); at += kInputPiece) {
    auto sending = client::send_stdin(inside, pid, input.substr(at, kInputPiece));
    if (auto sent = co_await std::move(sending); !sent.ok()) co_return public_error(sent.error());
  }
  auto closing = client::close_stdin(inside, pid);
  if (auto closed = co_await std::move(closing); !closed.ok())
    co_return public_error(closed.error());
  co_return Result<void>();
}

struct Wanted {
  client::Command command;
  client::StartOptions options;
  Listeners listeners;
};

net::Task<Result<Process>> start_process(Where where, Wanted wanted) {
  client::Command& command = wanted.command;
  std::optional<std::string> input = std::exchange(command.input, std::nullopt);
  Background background;
  background.inside = where.inside;
  background.keep = command.keep;
  background.timeout = command.timeout;
  background.marked.user = command.user;
  background.marked.mark = random_hex(16);
  background.terminal = wanted.options.terminal.has_value();
  background.listeners = std::move(wanted.listeners);
  if (command.timeout.count() > 0) wanted.options.mark = background.marked.mark;
  command.timeout = client::agent_deadline(command.timeout);
  auto starting =
      client::ProcessStream::start(where.inside, std::move(command), std::move(wanted.options));
  auto stream = co_await std::move(starting);
  if (!stream.ok()) co_return public_error(stream.error());
  background.stream = std::make_shared<client::ProcessStream>(std::move(*stream));
  background.marked.pid = background.stream->pid();
  const auto executor = co_await asio::this_coro::executor;
  auto follow = follow_in_background(executor, where, background);
  if (input) {
    auto feeding = feed(where.inside, background.marked.pid, std::move(*input));
    if (auto fed = co_await std::move(feeding); !fed.ok()) {
      auto killing = client::kill_process(where.inside, background.marked.pid);
      (void)co_await std::move(killing);  // the first error is the one to tell
      background.listeners.gate->shut();
      background.stream->close();
      co_return fed.error();
    }
  }
  co_return handle_of(where, background, std::move(follow));
}

net::Task<Result<Process>> connect_process(Where where, std::uint32_t pid, Listeners listeners,
                                           bool terminal) {
  Background background;
  background.inside = where.inside;
  background.terminal = terminal;
  background.listeners = std::move(listeners);
  auto connecting = client::ProcessStream::connect(where.inside, pid);
  auto stream = co_await std::move(connecting);
  if (!stream.ok()) co_return public_error(stream.error());
  background.stream = std::make_shared<client::ProcessStream>(std::move(*stream));
  const auto executor = co_await asio::this_coro::executor;
  auto follow = follow_in_background(executor, where, background);
  co_return handle_of(where, background, std::move(follow));
}

// ---- what is started ----

net::Task<Result<Process>> start_line(const SandboxState& sandbox, std::string line,
                                      CommandOptions options) {
  Wanted wanted;
  wanted.command = command_of(std::move(line), options);
  wanted.options.stdin_pipe = true;
  wanted.listeners = listeners_of(*sandbox.core, std::move(options.events.on_stdout),
                                  std::move(options.events.on_stderr));
  return start_process(Where(sandbox), std::move(wanted));
}

net::Task<Result<Process>> start_terminal(const SandboxState& sandbox, PtyOptions options) {
  Wanted wanted;
  client::Command& command = wanted.command;
  command.program = "/bin/bash";
  command.arguments = {"-i", "-l"};
  command.envs = {{"TERM", "xterm-256color"}, {"LANG", "C.UTF-8"}, {"LC_ALL", "C.UTF-8"}};
  for (auto& [name, value] : options.envs) command.envs[name] = std::move(value);
  command.directory = std::move(options.directory);
  command.user = std::move(options.user);
  command.timeout = options.timeout;
  wanted.options.terminal = client::TerminalSize{options.columns, options.rows};
  wanted.listeners = listeners_of(*sandbox.core, std::move(options.on_data), {});
  return start_process(Where(sandbox), std::move(wanted));
}

net::Task<Result<std::vector<ProcessInfo>>> list_all(client::Inside inside) {
  auto listing = client::list_processes(std::move(inside));
  auto found = co_await std::move(listing);
  if (!found.ok()) co_return public_error(found.error());
  std::vector<ProcessInfo> out;
  for (auto& each : *found)
    out.push_back({each.pid, std::move(each.command), std::move(each.arguments), each.tag});
  co_return out;
}

net::Task<Result<bool>> kill_one(client::Inside inside, std::uint32_t pid) {
  auto killing = client::kill_process(std::move(inside), pid);
  auto killed = co_await std::move(killing);
  if (killed.ok()) co_return true;
  if (killed.error().code == Errc::not_found) co_return false;
  co_return public_error(killed.error());
}

}  // namespace

// ---- Process ----

std::uint32_t Process::pid() const { return state_->pid; }

Result<CommandResult> Process::wait() {
  const auto state = state_;
  return state->follow->wait().get();
}

std::future<Result<CommandResult>> Process::wait_async() { return state_->follow->wait(); }

Result<void> Process::send(std::string bytes) {
  const auto state = state_;
  auto sending = state->terminal
                     ? client::send_terminal(state->inside, state->pid, std::move(bytes))
                     : client::send_stdin(state->inside, state->pid, std::move(bytes));
  return state->core->wait(publish<void>(std::move(sending)));
}

Result<void> Process::close_stdin() {
  const auto state = state_;
  return state->core->wait(publish<void>(client::close_stdin(state->inside, state->pid)));
}

Result<void> Process::kill() {
  const auto state = state_;
  return state->core->wait(publish<void>(client::kill_process(state->inside, state->pid)));
}

Result<void> Process::resize(std::uint32_t columns, std::uint32_t rows) {
  const auto state = state_;
  return state->core->wait(
      publish<void>(client::resize_terminal(state->inside, state->pid, {columns, rows})));
}

void Process::disconnect() {
  const auto state = state_;
  state->gate->shut_and_wait();
  state->close();
}

// ---- Commands ----

Result<CommandResult> Commands::run(std::string line, CommandOptions options) {
  const auto sandbox = sandbox_;
  auto box = listens(options.events) ? std::make_shared<Mailbox>() : nullptr;
  auto task = run_line(sandbox->core->io(), sandbox->inside, command_of(std::move(line), options),
                       std::move(options.events), box);
  return box ? sandbox->core->wait(box, std::move(task)) : sandbox->core->wait(std::move(task));
}

std::future<Result<CommandResult>> Commands::run_async(std::string line, CommandOptions options) {
  auto box = listens(options.events) ? sandbox_->core->dispatcher() : nullptr;
  return sandbox_->core->spawn(run_line(sandbox_->core->io(), sandbox_->inside,
                                        command_of(std::move(line), options),
                                        std::move(options.events), box));
}

Result<Process> Commands::start(std::string line, CommandOptions options) {
  const auto sandbox = sandbox_;
  return sandbox->core->wait(start_line(*sandbox, std::move(line), std::move(options)));
}

std::future<Result<Process>> Commands::start_async(std::string line, CommandOptions options) {
  return sandbox_->core->spawn(start_line(*sandbox_, std::move(line), std::move(options)));
}

Result<Process> Commands::connect(std::uint32_t pid, CommandEvents events) {
  const auto sandbox = sandbox_;
  Listeners listeners =
      listeners_of(*sandbox->core, std::move(events.on_stdout), std::move(events.on_stderr));
  return sandbox->core->wait(connect_process(Where(*sandbox), pid, std::move(listeners), false));
}

Result<std::vector<ProcessInfo>> Commands::list() {
  const auto sandbox = sandbox_;
  return sandbox->core->wait(list_all(sandbox->inside));
}

Result<bool> Commands::kill(std::uint32_t pid) {
  const auto sandbox = sandbox_;
  return sandbox->core->wait(kill_one(sandbox->inside, pid));
}

Result<void> Commands::send_stdin(std::uint32_t pid, std::string bytes) {
  const auto sandbox = sandbox_;
  return sandbox->core->wait(
      publish<void>(client::send_stdin(sandbox->inside, pid, std::move(bytes))));
}

Result<void> Commands::close_stdin(std::uint32_t pid) {
  const auto sandbox = sandbox_;
  return sandbox->core->wait(publish<void>(client::close_stdin(sandbox->inside, pid)));
}

// ---- Pty ----

Result<Process> Pty::create(PtyOptions options) {
  const auto sandbox = sandbox_;
  return sandbox->core->wait(start_terminal(*sandbox, std::move(options)));
}

std::future<Result<Process>> Pty::create_async(PtyOptions options) {
  return sandbox_->core->spawn(start_terminal(*sandbox_, std::move(options)));
}

Result<Process> Pty::connect(std::uint32_t pid, std::function<void(std::string_view)> on_data) {
  const auto sandbox = sandbox_;
  Listeners listeners = listeners_of(*sandbox->core, std::move(on_data), {});
  return sandbox->core->wait(connect_process(Where(*sandbox), pid, std::move(listeners), true));
}

}  // namespace atl::sdk
