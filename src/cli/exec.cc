#include "cli/exec.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdlib>
#include <thread>

#include "agent/process.pb.h"
#include "base/encoding.h"
#include "base/ids.h"
#include "cli/remote.h"
#include "cli/sandbox.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "client/process_stream.h"
#include "rpc/client.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kFindAgain{30};
constexpr std::chrono::milliseconds kBetweenTries{200};
constexpr std::size_t kInputPiece = 32 << 10;

// A sandbox and how to speak to its agent.
struct Inside {
  Remote remote;
  std::string id;
  std::string token;
  std::string user;

  rpc::CallOptions call() const {
    rpc::CallOptions options;
    options.headers.add("Host", remote.host);
    options.headers.add("E2b-Sandbox-Id", id);
    options.headers.add("E2b-Sandbox-Port", "49983");
    if (!token.empty()) options.headers.add("X-Access-Token", token);
    if (!user.empty()) options.headers.add("Authorization", "Basic " + base64_encode(user + ":"));
    return options;
  }
};

void put(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads us any more; the process still runs to its end
    bytes.remove_prefix(std::size_t(n));
  }
}

net::Task<Result<net::HttpClient>> open_client(const Remote& remote) {
  auto opening = open_stream(remote);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(opening));
  // A process may be silent for as long as it likes.
  net::HttpLimits limits;
  limits.idle_time = std::chrono::hours(24 * 365);
  co_return net::HttpClient(std::move(stream), limits);
}

net::Task<void> pause_between_tries() {
  asio::steady_timer timer(co_await asio::this_coro::executor, kBetweenTries);
  (void)co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

bool may_be_tried_again(const Error& error) {
  return error.code == Errc::unavailable || error.code == Errc::data_loss ||
         error.code == Errc::canceled;
}

// One unary call over a connection of its own; a server that is being replaced is waited for.
template <class Out>
net::Task<Result<void>> call_agent(const Inside& inside, std::string path,
                                   const google::protobuf::Message& in) {
  const auto until = std::chrono::steady_clock::now() + kFindAgain;
  for (;;) {
    Result<void> done;
    auto opening = open_client(inside.remote);
    auto client = co_await std::move(opening);
    if (client.ok()) {
      Out out;
      auto calling = rpc::unary(*client, path, in, out, inside.call());
      done = co_await std::move(calling);
    } else {
      done = std::move(client).error();
    }
    if (done.ok() || !may_be_tried_again(done.error()) ||
        std::chrono::steady_clock::now() > until) {
      co_return done;
    }
    auto waiting = pause_between_tries();
    co_await std::move(waiting);
  }
}

// ---- input: a thread of its own, because reading a terminal or a file may block ----

net::Task<void> send_piece(const Inside& inside, std::uint32_t pid, bool terminal,
                           std::string_view bytes, bool& going) {
  process::SendInputRequest request;
  request.mutable_process()->set_pid(pid);
  if (terminal) {
    request.mutable_input()->set_pty(std::string(bytes));
  } else {
    request.mutable_input()->set_stdin(std::string(bytes));
  }
  auto sending =
      call_agent<process::SendInputResponse>(inside, "/process.Process/SendInput", request);
  auto sent = co_await std::move(sending);
  going = sent.ok();  // it has ended, or closed its stdin
}

net::Task<void> close_stdin(const Inside& inside, std::uint32_t pid) {
  process::CloseStdinRequest request;
  request.mutable_process()->set_pid(pid);
  auto closing =
      call_agent<process::CloseStdinResponse>(inside, "/process.Process/CloseStdin", request);
  (void)co_await std::move(closing);  // it may have ended already
}

void pump_input(Inside inside, std::uint32_t pid, bool terminal) {
  asio::io_context io;
  const auto finish = [&io](net::Task<void> task) {
    asio::co_spawn(io, std::move(task), [](std::exception_ptr) {});
    io.restart();
    io.run();
  };
  std::string buffer(kInputPiece, '\0');
  bool going = true;
  while (going) {
    const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    finish(
        send_piece(inside, pid, terminal, std::string_view(buffer.data(), std::size_t(n)), going));
  }
  if (!going) return;
  if (terminal) {
    finish(send_piece(inside, pid, true, "\x04", going));  // end of input, as typed
  } else {
    finish(close_stdin(inside, pid));
  }
}

// ---- the session ----

struct Session {
  asio::io_context io;
  Inside inside;
  bool terminal = false;
  std::uint32_t pid = 0;
  std::optional<Result<int>> outcome;
};

void begin_input(Session& session) {
  std::thread(pump_input, session.inside, session.pid, session.terminal).detach();
}

net::Task<void> follow_window(Session& session) {
  asio::signal_set signals(co_await asio::this_coro::executor, SIGWINCH);
  for (;;) {
    auto [ec, number] = co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
    if (ec) co_return;
    if (session.pid == 0) continue;
    const WindowSize size = window_size();
    process::UpdateRequest request;
    request.mutable_process()->set_pid(session.pid);
    request.mutable_pty()->mutable_size()->set_cols(size.columns);
    request.mutable_pty()->mutable_size()->set_rows(size.rows);
    auto updating =
        call_agent<process::UpdateResponse>(session.inside, "/process.Process/Update", request);
    (void)co_await std::move(updating);  // the next change brings the size again
  }
}

net::Task<void> pass_signals(Session& session) {
  asio::signal_set signals(co_await asio::this_coro::executor, SIGINT, SIGTERM, SIGHUP);
  for (int count = 0;; ++count) {
    auto [ec, number] = co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
    if (ec) co_return;
    if (session.pid == 0 || count > 1) {
      session.outcome.emplace(128 + number);
      session.io.stop();
      co_return;
    }
    process::SendSignalRequest request;
    request.mutable_process()->set_pid(session.pid);
    request.set_signal(count == 0 ? process::SIGNAL_SIGTERM : process::SIGNAL_SIGKILL);
    auto sending = call_agent<process::SendSignalResponse>(session.inside,
                                                           "/process.Process/SendSignal", request);
    (void)co_await std::move(sending);
  }
}

// Copies events until the end of the process; nullopt: the connection broke.
template <class Message>
net::Task<Result<std::optional<int>>> follow(Session& session, rpc::ServerStream& events) {
  for (;;) {
    Message message;
    auto next = events.next(message);
    auto more = co_await std::move(next);
    if (!more.ok()) {
      if (session.pid != 0 && may_be_tried_again(more.error())) co_return std::optional<int>();
      co_return std::move(more).error();
    }
    if (!*more) co_return std::optional<int>();
    const auto& event = message.event();
    if (event.has_start()) {
      const bool first = session.pid == 0;
      session.pid = event.start().pid();
      if (first) begin_input(session);
    } else if (event.has_data()) {
      put(STDOUT_FILENO, event.data().stdout());
      put(STDERR_FILENO, event.data().stderr());
      put(STDOUT_FILENO, event.data().pty());
    } else if (event.has_end()) {
      co_return std::optional<int>(client::exit_code_of(
          event.end().exited(), event.end().exit_code(), event.end().status()));
    }
  }
}

net::Task<Result<std::optional<int>>> start_and_follow(Session& session,
                                                       const process::StartRequest& start) {
  auto opening = open_client(session.inside.remote);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(opening));
  auto calling =
      rpc::ServerStream::open(client, "/process.Process/Start", start, session.inside.call());
  ATOLL_CO_TRY_ASSIGN(rpc::ServerStream events, co_await std::move(calling));
  auto following = follow<process::StartResponse>(session, events);
  co_return co_await std::move(following);
}

net::Task<Result<std::optional<int>>> find_and_follow(Session& session) {
  process::ConnectRequest request;
  request.mutable_process()->set_pid(session.pid);
  auto opening = open_client(session.inside.remote);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(opening));
  auto calling =
      rpc::ServerStream::open(client, "/process.Process/Connect", request, session.inside.call());
  ATOLL_CO_TRY_ASSIGN(rpc::ServerStream events, co_await std::move(calling));
  auto following = follow<process::ConnectResponse>(session, events);
  co_return co_await std::move(following);
}

bool is_gone(const Inside& inside) {
  ApiClient api(inside.remote);
  auto info = api.call("GET", "/sandboxes/" + inside.id);
  return !info.ok() && info.error().code == Errc::not_found;
}

net::Task<Result<int>> run(Session& session, process::StartRequest start) {
  auto starting = start_and_follow(session, start);
  ATOLL_CO_TRY_ASSIGN(std::optional<int> status, co_await std::move(starting));
  const auto until = std::chrono::steady_clock::now() + kFindAgain;
  while (!status) {
    if (is_gone(session.inside))
      co_return make_error(Errc::not_found, "the sandbox ended while the command was running");
    auto waiting = pause_between_tries();
    co_await std::move(waiting);
    auto finding = find_and_follow(session);
    auto found = co_await std::move(finding);
    if (found.ok()) {
      status = *found;
    } else if (!may_be_tried_again(found.error()) || std::chrono::steady_clock::now() > until) {
      co_return make_error(
          found.error().code,
          "the connection broke and the command was not found again: " + found.error().message);
    }
  }
  co_return *status;
}

net::Task<void> drive(Session& session, process::StartRequest start) {
  auto running = run(session, std::move(start));
  auto outcome = co_await std::move(running);
  if (!session.outcome) session.outcome.emplace(std::move(outcome));
  session.io.stop();
}

Result<process::StartRequest> start_request(const ExecOptions& options) {
  process::StartRequest start;
  auto* process = start.mutable_process();
  process->set_cmd(options.command.front());
  for (std::size_t i = 1; i < options.command.size(); ++i) process->add_args(options.command[i]);
  if (!options.directory.empty()) process->set_cwd(options.directory);
  auto& envs = *process->mutable_envs();
  if (options.terminal) {
    const char* kind = std::getenv("TERM");
    envs["TERM"] = kind != nullptr && *kind != '\0' ? kind : "xterm-256color";
    envs["LANG"] = "C.UTF-8";
    const WindowSize size = window_size();
    start.mutable_pty()->mutable_size()->set_cols(size.columns);
    start.mutable_pty()->mutable_size()->set_rows(size.rows);
  } else {
    start.set_stdin(true);
  }
  for (const std::string& pair : options.envs) {
    ATOLL_TRY_ASSIGN(const auto parts, split_pair(pair));
    envs[parts.first] = parts.second;
  }
  return start;
}

Result<Inside> find_inside(const ExecOptions& options) {
  if (!SandboxId::parse(options.id))
    return make_error(Errc::invalid_argument, "not the id of a sandbox: '" + printable(options.id) +
                                                  "' (`atoll sandbox ls` shows them)");
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(remote);
  ATOLL_TRY_ASSIGN(const ApiClient::Answer info, api.call("GET", "/sandboxes/" + options.id));
  if (text_of(info.body, "state") == "paused") {
    return make_error(Errc::failed_precondition,
                      "the sandbox is paused. FIX: atoll sandbox resume " + options.id);
  }
  return Inside{std::move(remote), options.id, text_of(info.body, "envdAccessToken"), options.user};
}

}  // namespace

Result<int> sandbox_exec(const ExecOptions& options) {
  if (options.command.empty()) {
    return make_error(Errc::invalid_argument,
                      "which command? atoll sandbox exec ID -- COMMAND [ARGUMENT...]");
  }
  ::signal(SIGPIPE, SIG_IGN);
  ATOLL_TRY_ASSIGN(process::StartRequest start, start_request(options));
  Session session;
  ATOLL_TRY_ASSIGN(session.inside, find_inside(options));
  session.terminal = options.terminal;
  {
    std::optional<RawTerminal> raw;
    if (options.terminal) {
      ATOLL_TRY_ASSIGN(RawTerminal entered, RawTerminal::enter());
      raw.emplace(std::move(entered));
      asio::co_spawn(session.io, follow_window(session), [](std::exception_ptr) {});
    }
    asio::co_spawn(session.io, pass_signals(session), [](std::exception_ptr) {});
    asio::co_spawn(session.io, drive(session, std::move(start)),
                   [&session](std::exception_ptr failure) {
                     if (failure) session.io.stop();
                   });
    session.io.run();
  }
  if (!session.outcome) return make_error(Errc::internal, "the command ended without a result");
  if (session.outcome->ok()) {
    // The thread that reads stdin may be in the middle of it: no destructors from here on.
    std::fflush(nullptr);
    ::_exit(**session.outcome);
  }
  return std::move(*session.outcome);
}

Result<int> sandbox_connect(ExecOptions options) {
  options.terminal = true;
  options.command = {"/bin/bash", "-i", "-l"};
  return sandbox_exec(options);
}

}  // namespace atl::cli
