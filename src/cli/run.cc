#include "cli/run.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/log.h"
#include "cli/cell.h"
#include "cli/embedded.h"
#include "cli/home.h"
#include "cli/program.h"
#include "cli/table.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

constexpr int kTimedOut = 124;  // as timeout(1)
constexpr const char* kSlim = "code-interpreter-slim";
constexpr const char* kFull = "code-interpreter-v1";

bool is_file(const std::string& path) {
  struct stat info{};
  return path.size() < 4096 && ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

struct Program {
  std::string code;
  const Language* language = nullptr;
};

Result<Program> read_program(const RunOptions& options) {
  Program program;
  const Language* by_name = nullptr;
  if (!options.file.empty() && !options.code.empty())
    return make_error(Errc::invalid_argument, "--file and code: only one of them");
  const std::string& path = options.file.empty() ? options.code : options.file;
  if (path.empty() || path == "-") {
    if (::isatty(STDIN_FILENO))
      std::fprintf(stderr, "reading the code from the terminal; end it with Ctrl-D\n");
    program.code.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else if (!options.file.empty() || is_file(path)) {
    ATOLL_TRY_ASSIGN(program.code, read_file(path));
    by_name = language_of_file(path);
  } else {
    program.code = options.code;
  }
  ATOLL_TRY_ASSIGN(program.language, choose_language(options.language, by_name));
  return program;
}

struct Run {
  explicit Run(const RunOptions& o, Saver& saver)
      : options(o), display(o.json ? Style::json : Style::terminal, saver) {}

  const RunOptions& options;
  Display display;
  Program program;
  std::map<std::string, std::string> envs;
  std::string template_name;
  asio::io_context io;
  std::unique_ptr<Embedded> embedded;  // null: on a server
  Inside inside;
  Interrupter interrupter;
  bool timed_out = false;
  std::optional<Result<int>> outcome;
};

net::Task<void> watch_time(Run& run) {
  asio::steady_timer timer(co_await asio::this_coro::executor,
                           std::chrono::seconds(run.options.timeout_seconds));
  auto [ec] = co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  if (ec || run.outcome) co_return;
  run.timed_out = true;
  run.outcome.emplace(kTimedOut);
  run.display.note(fmt::format("atoll: the code was stopped after {} s (--timeout)",
                               run.options.timeout_seconds));
  run.interrupter.interrupt();
  if (run.embedded) {
    auto ending = run.embedded->shutdown();
    co_await std::move(ending);
  }
  run.io.stop();
}

net::Task<Result<int>> work(Run& run) {
  if (run.embedded) {
    const auto life = std::chrono::seconds(run.options.timeout_seconds) + std::chrono::minutes(1);
    auto creating = run.embedded->create(run.template_name, life, run.envs);
    ATOLL_CO_TRY_ASSIGN(run.inside, co_await std::move(creating));
  }
  const auto began = std::chrono::system_clock::now();
  asio::co_spawn(run.io, watch_time(run), [](std::exception_ptr) {});
  auto running = run_cell(run.inside, run.program.code, std::string(run.program.language->name),
                          run.display, run.interrupter);
  auto execution = co_await std::move(running);
  if (!execution.ok()) {
    if (execution.error().code != Errc::not_found || run.options.json)
      co_return std::move(execution).error();
    auto falling_back = run_program(run.inside, *run.program.language, run.program.code);
    co_return co_await std::move(falling_back);
  }
  auto saving = save_new_files(run.inside, began, run.display);
  if (auto saved = co_await std::move(saving); !saved.ok())
    run.display.note("files of the run were not saved: " + saved.error().message);
  run.display.end(*execution);
  co_return exit_status(*execution);
}

net::Task<void> live(Run& run) {
  auto working = work(run);
  auto outcome = co_await std::move(working);
  if (run.outcome) co_return;  // a signal or the timeout came first, and ends everything
  run.outcome.emplace(std::move(outcome));
  if (run.embedded) {
    auto ending = run.embedded->shutdown();
    co_await std::move(ending);
  }
  run.io.stop();
}

net::Task<void> watch_signals(Run& run) {
  asio::signal_set signals(co_await asio::this_coro::executor, SIGINT, SIGTERM);
  auto [ec, number] = co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
  if (ec || run.outcome) co_return;
  run.outcome.emplace(128 + number);
  run.interrupter.interrupt();
  if (run.embedded) {
    auto ending = run.embedded->shutdown();
    co_await std::move(ending);
  }
  run.io.stop();
}

// The sandbox of --keep.
Result<Inside> create_on_server(const RunOptions& options, const Run& run) {
  auto remote = find_remote(options.home);
  if (!remote.ok())
    return make_error(remote.error().code,
                      remote.error().message + "; --keep needs a server, which has the sandbox");
  ApiClient api(*remote);
  json::object body{{"templateID", run.template_name},
                    {"timeout", options.timeout_seconds + 3600},
                    {"secure", true}};
  json::object envs;
  for (const auto& [name, value] : run.envs) envs[name] = value;
  body["envVars"] = std::move(envs);
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("POST", "/sandboxes", body));
  const std::string id = text_of(answer.body, "sandboxID");
  if (id.empty()) return make_error(Errc::data_loss, "the server's answer has no sandbox");
  std::fprintf(stderr, "sandbox %s\n", printable(id).c_str());
  return inside_of(*std::move(remote), id, text_of(answer.body, "envdAccessToken"),
                   text_of(answer.body, "trafficAccessToken"));
}

}  // namespace

Result<std::map<std::string, std::string>> parse_envs(const std::vector<std::string>& pairs) {
  std::map<std::string, std::string> out;
  for (const std::string& pair : pairs) {
    const std::size_t eq = pair.find('=');
    if (eq == 0 || eq == std::string::npos)
      return make_error(Errc::invalid_argument, "not KEY=VALUE: " + pair);
    out[pair.substr(0, eq)] = pair.substr(eq + 1);
  }
  return out;
}

Result<const Language*> choose_language(const std::string& name, const Language* fallback) {
  if (name.empty()) return fallback != nullptr ? fallback : &default_language();
  if (const Language* language = find_language(name)) return language;
  return make_error(Errc::invalid_argument, "unknown language '" + name + "': " + language_names());
}

Result<std::string> choose_template(const RunOptions& options, const Language& language) {
  if (!options.template_name.empty()) return options.template_name;
  if (language.in_slim || options.keep) return std::string(language.in_slim ? kSlim : kFull);
  const std::string store = Home::at(default_home(options.home)).templates();
  if (is_file(store + "/" + kFull + "/manifest.json")) return std::string(kFull);
  return make_error(Errc::not_found,
                    fmt::format("{} needs the template {}, which is not there yet: `tools/"
                                "build-template {} {}` or `atoll up` in a checkout prepares it",
                                language.name, kFull, kFull, store));
}

Result<int> run_code(const RunOptions& options) {
  log::configure(options.timings ? log::Level::debug : log::Level::warn, log::Format::text);
  ::signal(SIGPIPE, SIG_IGN);
  ATOLL_TRY_ASSIGN(Program program, read_program(options));
  ATOLL_TRY_ASSIGN(auto envs, parse_envs(options.envs));
  ATOLL_TRY_ASSIGN(std::string template_name, choose_template(options, *program.language));
  ATOLL_TRY_ASSIGN(Saver saver, Saver::start(options.output));

  Run run(options, saver);
  run.program = std::move(program);
  run.envs = std::move(envs);
  run.template_name = std::move(template_name);
  if (options.keep) {
    ATOLL_TRY_ASSIGN(run.inside, create_on_server(options, run));
  } else {
    ATOLL_TRY_ASSIGN(run.embedded, Embedded::start(run.io, default_home(options.home)));
  }
  asio::co_spawn(run.io, watch_signals(run), [](std::exception_ptr) {});
  asio::co_spawn(run.io, live(run), [&run](std::exception_ptr failure) {
    if (failure) run.io.stop();
  });
  run.io.run();
  run.embedded.reset();
  if (!run.outcome) return make_error(Errc::internal, "the run ended without a result");
  return std::move(*run.outcome);
}

}  // namespace atl::cli
