#include "cli/repl.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_future.hpp>
#include <cstdlib>
#include <thread>

#include "base/log.h"
#include "cli/cell.h"
#include "cli/embedded.h"
#include "cli/line_editor.h"
#include "cli/unfinished.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

constexpr const char* kHelp =
    ":quit or Ctrl-D ends, Ctrl-C interrupts; a line that is not complete goes on in the next\n";

struct Session {
  Session(const Language& l, Saver& saver, LineEditor& e)
      : language(l), display(Style::terminal, saver), editor(e) {}

  const Language& language;
  Display display;
  LineEditor& editor;
  asio::io_context io;
  std::unique_ptr<Embedded> embedded;
  Inside inside;
  Interrupter interrupter;
};

// SIGTERM and SIGHUP end the session; the sandbox goes with it.
net::Task<void> watch_signals(Session& session) {
  asio::signal_set signals(co_await asio::this_coro::executor, SIGINT, SIGTERM, SIGHUP);
  for (;;) {
    auto [ec, number] = co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
    if (ec) co_return;
    session.interrupter.interrupt();
    if (number == SIGINT) continue;
    auto ending = session.embedded->shutdown();
    co_await std::move(ending);
    // The other thread may be waiting for a line for ever.
    session.editor.restore_terminal();
    session.embedded->remove_state();
    ::_exit(128 + number);
  }
}

net::Task<void> run_one(Session& session, std::string code, bool& failed) {
  const auto began = std::chrono::system_clock::now();
  auto running = run_cell(session.inside, std::move(code), std::string(session.language.name),
                          session.display, session.interrupter);
  auto execution = co_await std::move(running);
  if (!execution.ok()) {
    failed = true;
    session.display.note(execution.error().code == Errc::canceled
                             ? "interrupted"
                             : "atoll: " + execution.error().message);
    co_return;
  }
  failed = execution->error.has_value();
  auto saving = save_new_files(session.inside, began, session.display);
  if (auto saved = co_await std::move(saving); !saved.ok())
    session.display.note("files were not saved: " + saved.error().message);
  session.display.end(*execution);
}

net::Task<void> create(Session& session, std::string template_name, std::chrono::seconds life,
                       std::map<std::string, std::string> envs, Result<void>& done) {
  auto creating = session.embedded->create(std::move(template_name), life, std::move(envs));
  auto made = co_await std::move(creating);
  if (made.ok()) {
    session.inside = *std::move(made);
  } else {
    done = std::move(made).error();
  }
}

std::string history_file() {
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.atoll_history" : "";
}

void finish(asio::io_context& io, net::Task<void> task) {
  asio::co_spawn(io, std::move(task), asio::use_future).get();
}

// Exit status: that of the last cell where nobody watches, 0 on a terminal.
int converse(Session& session) {
  LineEditor& editor = session.editor;
  const std::string prompt = std::string(session.language.name) + "> ";
  const std::string more(prompt.size() - 4, ' ');
  std::string cell;
  bool failed = false;
  for (;;) {
    const LineEditor::Read read = editor.read(cell.empty() ? prompt : more + "... ");
    if (read.outcome == LineEditor::Outcome::cancelled) {
      cell.clear();
      continue;
    }
    const bool end = read.outcome == LineEditor::Outcome::end;
    if (!end) {
      if (cell.empty() && (read.text == ":quit" || read.text == ":q")) break;
      if (cell.empty() && read.text == ":help") {
        put(STDERR_FILENO, kHelp);
        continue;
      }
      if (!cell.empty()) cell += '\n';
      cell += read.text;
      if (is_unfinished(session.language, cell)) continue;
    }
    if (cell.find_first_not_of(" \t\n") != std::string::npos) {
      editor.remember(cell);
      finish(session.io, run_one(session, cell, failed));
    }
    cell.clear();
    if (end) break;
  }
  if (editor.on_terminal()) put(STDOUT_FILENO, "\n");
  return failed && !editor.on_terminal() ? 1 : 0;
}

}  // namespace

Result<int> repl(const RunOptions& options) {
  log::configure(log::Level::warn, log::Format::text);
  ::signal(SIGPIPE, SIG_IGN);
  ATOLL_TRY_ASSIGN(const Language* language, choose_language(options.language, nullptr));
  ATOLL_TRY_ASSIGN(auto envs, parse_envs(options.envs));
  ATOLL_TRY_ASSIGN(const std::string template_name, choose_template(options, *language));
  ATOLL_TRY_ASSIGN(Saver saver, Saver::start(options.output));
  LineEditor editor(history_file());
  Session session(*language, saver, editor);
  ATOLL_TRY_ASSIGN(session.embedded, Embedded::start(session.io, default_home(options.home)));

  auto guard = asio::make_work_guard(session.io);
  asio::co_spawn(session.io, watch_signals(session), [](std::exception_ptr) {});
  std::thread engine([&session] { session.io.run(); });
  // Signals are the engine's thread's: one that cut a read short here would look like its end.
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, number);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  Result<void> made;
  finish(session.io, create(session, template_name, std::chrono::seconds(options.timeout_seconds),
                            std::move(envs), made));
  Result<int> status = 0;
  if (made.ok()) {
    if (editor.on_terminal())
      put(STDERR_FILENO,
          fmt::format("{} in a sandbox of {}; {}", language->name, template_name, kHelp));
    status = converse(session);
  } else {
    status = std::move(made).error();
  }
  finish(session.io, session.embedded->shutdown());
  session.io.stop();
  engine.join();
  session.embedded.reset();
  return status;
}

}  // namespace atl::cli
