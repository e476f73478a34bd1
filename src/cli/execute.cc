#include "cli/execute.h"

#include <signal.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "base/log.h"
#include "cli/display.h"
#include "cli/embedded.h"
#include "cli/home.h"
#include "cli/remote.h"
#include "cli/run.h"
#include "client/executor.h"
#include "client/remote_sandbox.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

constexpr int kTimedOut = 124;
constexpr double kMaxTimeout = 24 * 3600.0;
// A sandbox that nobody ends any more lives that much longer than its run.
constexpr std::chrono::seconds kSpare{60};
// How long a signal waits for a sandbox that is being made.
constexpr std::chrono::seconds kMaking{15};
constexpr const char* kTheirTemplate = "code-interpreter-v1";  // of E2B's own service

struct Execute {
  asio::io_context io;
  std::unique_ptr<Embedded> embedded;  // null: on a server
  client::Account account;
  client::NewSandbox wanted;
  bool making = false;  // a server was asked for a sandbox
  asio::steady_timer made{io, asio::steady_timer::time_point::max()};  // cancelled when it answered
  std::string id;  // of the sandbox on a server, once it is made
  bool disposed = false;
  client::Executed executed;
  int signal = 0;
};

net::Task<void> dispose(Execute& run) {
  if (std::exchange(run.disposed, true)) co_return;  // a signal came first
  if (run.embedded) {
    auto ending = run.embedded->shutdown();
    co_await std::move(ending);
  } else if (!run.id.empty()) {
    auto killing = client::kill_sandbox(run.account, run.id);
    (void)co_await std::move(killing);
  }
}

net::Task<Result<Inside>> create(Execute& run) {
  if (run.embedded) {
    auto creating =
        run.embedded->create(run.wanted.template_id, run.wanted.timeout, run.wanted.envs);
    co_return co_await std::move(creating);
  }
  run.making = true;
  auto creating = client::create_sandbox(run.account, run.wanted);
  auto sandbox = co_await std::move(creating);
  run.making = false;
  if (sandbox.ok()) run.id = sandbox->id;
  run.made.cancel();
  if (!sandbox.ok()) co_return std::move(sandbox).error();
  auto inside = client::inside_of(run.account, *sandbox);
  if (!inside.ok()) {
    auto disposing = dispose(run);
    co_await std::move(disposing);
  }
  co_return inside;
}

net::Task<void> live(Execute& run, std::string code, client::ExecuteOptions options) {
  client::SandboxSource source;
  source.create = [&run] { return create(run); };
  source.dispose = [&run] { return dispose(run); };
  auto executing =
      client::execute_structured(std::move(source), std::move(code), std::move(options));
  auto executed = co_await std::move(executing);
  if (run.signal != 0) co_return;  // that ends everything
  run.executed = std::move(executed);
  run.io.stop();
}

net::Task<void> watch_signals(Execute& run) {
  asio::signal_set signals(co_await asio::this_coro::executor, SIGINT, SIGTERM);
  auto [ec, number] = co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
  if (ec) co_return;
  run.signal = number;
  if (run.making) {
    // The server makes it, whether we wait or not: then it has to be killed.
    run.made.expires_after(kMaking);
    (void)co_await run.made.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  auto disposing = dispose(run);
  co_await std::move(disposing);
  run.io.stop();
}

bool has_environment(const ExecuteCommand& command) {
  const char* key = std::getenv("E2B_API_KEY");
  const char* url = std::getenv("E2B_API_URL");
  const char* domain = std::getenv("E2B_DOMAIN");
  return command.home.empty() && key != nullptr && *key != '\0' &&
         (url != nullptr || domain != nullptr);
}

// Where sandboxes come from; needs no sandbox yet.
Result<void> prepare(const ExecuteCommand& command, const Language& language, Execute& run) {
  RunOptions like;
  like.home = command.home;
  like.template_name = command.template_name;
  like.keep = true;  // a server knows its templates itself
  if (has_environment(command)) {
    ATOLL_TRY(find_remote(command.home));  // gives up root
    ATOLL_TRY_ASSIGN(run.account, client::account_from_environment());
    const bool theirs = run.account.domain == "e2b.app" && command.template_name.empty();
    if (theirs) like.template_name = kTheirTemplate;
  } else if (auto remote = find_remote(command.home); remote.ok()) {
    run.account.api = std::move(*remote);
  } else if (::geteuid() != 0) {
    return std::move(remote).error();
  } else {
    like.keep = false;
    ATOLL_TRY_ASSIGN(run.wanted.template_id, choose_template(like, language));
    ATOLL_TRY_ASSIGN(run.embedded, Embedded::start(run.io, default_home(command.home)));
    return {};
  }
  ATOLL_TRY_ASSIGN(run.wanted.template_id, choose_template(like, language));
  return {};
}

client::Executed not_available(std::string why) {
  client::Executed executed;
  executed.error = client::CellError{client::kSandboxError, std::move(why), ""};
  return executed;
}

void print_plain(const client::Executed& executed) {
  for (const std::string& text : executed.err) put(STDERR_FILENO, text);
  for (const std::string& text : executed.out) put(STDOUT_FILENO, text);
  if (!executed.output.empty()) put(STDOUT_FILENO, executed.output + "\n");
  if (!executed.error) return;
  const client::CellError& error = *executed.error;
  put(STDERR_FILENO,
      (error.traceback.empty() ? error.name + ": " + error.value : error.traceback) + "\n");
}

}  // namespace

Result<int> execute_code(const ExecuteCommand& command) {
  log::configure(log::Level::warn, log::Format::text);
  ::signal(SIGPIPE, SIG_IGN);
  if (!(command.timeout_seconds > 0 && command.timeout_seconds <= kMaxTimeout))
    return make_error(Errc::invalid_argument, "--timeout must be more than 0 and at most a day");
  ATOLL_TRY_ASSIGN(const Language* language, choose_language(command.language, nullptr));
  client::ExecuteOptions options;
  ATOLL_TRY_ASSIGN(options.envs, parse_envs(command.envs));
  options.language = language->name;
  options.timeout = std::chrono::milliseconds(std::llround(command.timeout_seconds * 1000));
  std::string code = command.code;
  if (code.empty() || code == "-") code.assign(std::istreambuf_iterator<char>(std::cin), {});

  Execute run;
  run.wanted.timeout = std::chrono::ceil<std::chrono::seconds>(options.timeout) + kSpare;
  if (auto prepared = prepare(command, *language, run); !prepared.ok()) {
    run.executed = not_available(prepared.error().message);
  } else {
    asio::co_spawn(run.io, watch_signals(run), [](std::exception_ptr) {});
    asio::co_spawn(run.io, live(run, std::move(code), std::move(options)),
                   [&run](std::exception_ptr failure) {
                     if (!failure) return;
                     run.executed = not_available("the execution failed unexpectedly");
                     run.io.stop();
                   });
    run.io.run();
    run.embedded.reset();
    if (run.signal != 0) return 128 + run.signal;
  }
  if (command.structured) {
    put(STDOUT_FILENO, json::serialize(run.executed.to_json()) + "\n");
  } else {
    print_plain(run.executed);
  }
  if (run.executed.success) return 0;
  return run.executed.error && run.executed.error->name == client::kTimeoutError ? kTimedOut : 1;
}

}  // namespace atl::cli
