#include "cli/run.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/ids.h"
#include "base/log.h"
#include "cli/home.h"
#include "cli/instance.h"
#include "cli/program.h"
#include "egress/egress.h"
#include "engine/engine.h"
#include "store/store.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

constexpr int kTimedOut = 124;  // as timeout(1)

bool is_file(const std::string& path) {
  struct stat info{};
  return path.size() < 4096 && ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

Result<Program> read_program(const RunOptions& options) {
  Program program;
  std::optional<Language> language;
  if (options.code.empty() || options.code == "-") {
    if (::isatty(STDIN_FILENO))
      std::fprintf(stderr, "reading the code from the terminal; end it with Ctrl-D\n");
    program.code.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else if (is_file(options.code)) {
    ATOLL_TRY_ASSIGN(program.code, read_file(options.code));
    language = language_of_file(options.code);
  } else {
    program.code = options.code;
  }
  if (!options.language.empty()) {
    language = parse_language(options.language);
    if (!language) {
      return make_error(Errc::invalid_argument,
                        "unknown language '" + options.language + "': python, bash, javascript");
    }
  }
  program.language = language.value_or(Language::python);
  for (const std::string& pair : options.envs) {
    const std::size_t eq = pair.find('=');
    if (eq == 0 || eq == std::string::npos)
      return make_error(Errc::invalid_argument, "not KEY=VALUE: " + pair);
    program.envs[pair.substr(0, eq)] = pair.substr(eq + 1);
  }
  program.timeout = std::chrono::seconds(options.timeout_seconds);
  return program;
}

struct Run {
  asio::io_context io;
  std::unique_ptr<runtime::JailRuntime> runtime;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<egress::Egress> egress;  // the code's names are resolved here
  std::optional<Result<int>> outcome;
};

net::Task<Result<int>> work(Run& run, const RunOptions& options, Program program) {
  auto starting = run.engine->start();
  ATOLL_CO_TRY(co_await std::move(starting));
  auto asking = run.runtime->egress_sockets();
  ATOLL_CO_TRY_ASSIGN(const runtime::EgressSockets sockets, co_await std::move(asking));
  if (sockets.proxy >= 0) {
    ATOLL_CO_TRY_ASSIGN(run.egress,
                        egress::Egress::create(run.io, sockets, run.engine->egress(), {}));
  }
  engine::CreateCommand command;
  command.caller.team_id = run.store->default_team().id;
  command.template_reference = options.template_name;
  command.timeout = std::chrono::seconds(options.timeout_seconds) + std::chrono::minutes(1);
  command.secure = true;
  auto creating = run.engine->create(std::move(command));
  ATOLL_CO_TRY_ASSIGN(const engine::SandboxInfo sandbox, co_await std::move(creating));
  auto running = run_program(*run.runtime, sandbox.record.id, sandbox.access_token.value_or(""),
                             std::move(program));
  auto status = co_await std::move(running);
  if (!status.ok() && status.error().code == Errc::deadline_exceeded) {
    std::fprintf(stderr, "atoll: the code was killed after %u s (--timeout)\n",
                 options.timeout_seconds);
    co_return kTimedOut;
  }
  co_return status;
}

net::Task<void> live(Run& run, const RunOptions& options, Program program) {
  auto working = work(run, options, std::move(program));
  auto outcome = co_await std::move(working);
  if (!run.outcome) run.outcome.emplace(std::move(outcome));
  auto killing = run.engine->shutdown(std::chrono::seconds(10), engine::AtShutdown::kill_sandboxes);
  co_await std::move(killing);
  run.io.stop();
}

net::Task<void> watch_signals(Run& run) {
  asio::signal_set signals(co_await asio::this_coro::executor, SIGINT, SIGTERM);
  auto [ec, number] = co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
  if (ec) co_return;
  run.outcome.emplace(128 + number);
  auto killing = run.engine->shutdown(std::chrono::seconds(10), engine::AtShutdown::kill_sandboxes);
  co_await std::move(killing);
  run.io.stop();
}

}  // namespace

Result<int> run_code(const RunOptions& options) {
  log::configure(options.timings ? log::Level::debug : log::Level::warn, log::Format::text);
  ::signal(SIGPIPE, SIG_IGN);
  ATOLL_TRY_ASSIGN(Program program, read_program(options));
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY_ASSIGN(const Home home, Home::open(options.home, user));
  ATOLL_TRY(sweep_dead_runs(home, user));
  ATOLL_TRY_ASSIGN(const Instance instance,
                   Instance::claim(home, "run-" + random_base36(12), user));

  Run run;
  ATOLL_TRY_ASSIGN(run.runtime, start_runtime(run.io, home, instance.name(), user));
  ATOLL_TRY(become(user));
  const std::string db = home.path() + "/state/" + instance.name() + ".db";
  ATOLL_TRY_ASSIGN(run.store, store::Store::open(db));
  engine::EngineOptions engine_options;
  engine_options.home = home.path();
  engine_options.templates = home.templates();
  ATOLL_TRY_ASSIGN(run.engine,
                   engine::Engine::create(run.io, *run.store, *run.runtime, engine_options));

  asio::co_spawn(run.io, watch_signals(run), [](std::exception_ptr) {});
  asio::co_spawn(run.io, live(run, options, std::move(program)),
                 [&run](std::exception_ptr failure) {
                   if (failure) run.io.stop();
                 });
  run.io.run();
  run.egress.reset();
  run.engine.reset();
  run.store.reset();
  for (const char* suffix : {"", "-wal", "-shm"}) ::unlink((db + suffix).c_str());
  if (!run.outcome) return make_error(Errc::internal, "the run ended without a result");
  return std::move(*run.outcome);
}

}  // namespace atl::cli
