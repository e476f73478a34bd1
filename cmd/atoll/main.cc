// atoll: the server and the command line in one binary. This file only reads the arguments and
// calls src/cli.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string_view>

#include "base/log.h"
#include "cli/doctor.h"
#include "cli/home.h"
#include "cli/key.h"
#include "cli/run.h"
#include "cli/up.h"

namespace {

int finish(atl::Result<int> result) {
  if (result.ok()) return *result;
  std::fprintf(stderr, "atoll: %s\n", result.error().message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace atl::cli;
  CLI::App app("Atoll: sandboxes for AI agents on one Linux machine", "atoll");
  app.require_subcommand(1);
  std::string home;
  int exit_code = 0;
  const auto with_home = [&home](CLI::App* command) {
    command->add_option("--home", home, "data directory (default: $ATOLL_HOME or /var/lib/atoll)");
    return command;
  };

  ServeOptions serve_options;
  for (const char* name : {"up", "serve"}) {
    CLI::App* up =
        with_home(app.add_subcommand(name, "serve the API and sandbox traffic on one port"));
    up->add_option("--listen", serve_options.listen, "address:port (port 0: a free one)")
        ->capture_default_str();
    up->add_flag("-d,--detach", serve_options.detach,
                 "return when the server is healthy; `atoll down` stops it");
    up->add_flag("--json-logs", serve_options.json_logs, "log lines as JSON objects");
    up->add_option("--max-sandboxes", serve_options.max_sandboxes, "how many may exist at once")
        ->capture_default_str();
    up->callback([&] {
      serve_options.home = default_home(home);
      exit_code = finish(serve_options.detach ? up_detached(serve_options, argc, argv)
                                              : serve(serve_options));
    });
  }

  with_home(app.add_subcommand("down", "stop the server and its sandboxes"))->callback([&] {
    exit_code = finish(down(default_home(home)));
  });

  RunOptions run_options;
  CLI::App* run =
      with_home(app.add_subcommand("run", "run code in a fresh sandbox; no server needed"));
  run->add_option("code", run_options.code,
                  "the code, or the name of a file; '-' or nothing reads stdin");
  run->add_option("-l,--language", run_options.language,
                  "python, bash or javascript (default: by the file's name, else python)");
  run->add_option("-e,--env", run_options.envs, "KEY=VALUE for the code (repeatable)");
  run->add_option("--template", run_options.template_name, "template")->capture_default_str();
  run->add_option("--timeout", run_options.timeout_seconds,
                  "seconds after which the code is killed")
      ->capture_default_str();
  run->add_flag("--timings", run_options.timings, "print how long each step of the launch took");
  run->callback([&] {
    run_options.home = default_home(home);
    exit_code = finish(run_code(run_options));
  });

  KeyOptions key_options;
  CLI::App* key = with_home(app.add_subcommand("key", "API keys: show, create, ls, rm"));
  key->add_option("verb", key_options.verb, "show (default), create NAME, ls, rm ID");
  key->add_option("argument", key_options.argument, "a name or an id");
  key->add_flag("--json", key_options.json, "print JSON");
  key->callback([&] {
    key_options.home = default_home(home);
    exit_code = finish(key_command(key_options));
  });

  DoctorOptions doctor_options;
  CLI::App* doctor =
      with_home(app.add_subcommand("doctor", "can this machine run sandboxes? one line per check"));
  doctor->add_option("--listen", doctor_options.listen, "the address that the server would use")
      ->capture_default_str();
  doctor->add_flag("--json", doctor_options.json, "print JSON");
  doctor->callback([&] {
    doctor_options.home = default_home(home);
    exit_code = finish(atl::cli::doctor(doctor_options));
  });

  app.set_version_flag("--version", "atoll " ATOLL_VERSION);
  app.footer("Errors say what to do next; `atoll doctor` checks this machine.");
  if (argc < 2 || std::string_view(argv[1]) == "help") {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  }
  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
