#include "exec_verb.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/execute.h"
#include "cli/language.h"
#include "finish.h"

void add_exec_verb(CLI::App& app, std::string& home, int& exit_code) {
  using namespace atl::cli;
  auto command = std::make_shared<ExecuteCommand>();
  CLI::App* verb = app.add_subcommand(
      "exec", "run code once, in a fresh sandbox that is gone afterwards, with a hard timeout");
  verb->add_option("--home", home, "data directory (default: $ATOLL_HOME or /var/lib/atoll)");
  verb->add_option("code", command->code, "the code; '-' or nothing reads stdin");
  verb->add_flag("--structured", command->structured,
                 "print one JSON object: success, output, error, time, logs");
  verb->add_option("-l,--language", command->language, language_names() + " (default: python)");
  verb->add_option("-t,--timeout", command->timeout_seconds,
                   "seconds; then the sandbox is killed, whatever the code does")
      ->capture_default_str();
  verb->add_option("-e,--env", command->envs, "KEY=VALUE for the code (repeatable)")
      ->allow_extra_args(false);
  verb->add_option("--template", command->template_name, "template (default: by the language)");
  verb->callback([&home, &exit_code, command] {
    command->home = home;
    exit_code = finish(execute_code(*command));
  });
}
