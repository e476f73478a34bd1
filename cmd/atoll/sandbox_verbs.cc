#include "sandbox_verbs.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/exec.h"
#include "cli/sandbox.h"
#include "finish.h"
#include "remote_verb.h"

namespace {

using namespace atl::cli;

using Verb = atl::Result<int> (*)(const SandboxOptions&);

}  // namespace

void add_sandbox_verbs(CLI::App& app, std::string& home, int& exit_code,
                       std::vector<std::string> command) {
  // The lambdas keep these alive as long as the application.
  auto options = std::make_shared<SandboxOptions>();
  auto exec_options = std::make_shared<ExecOptions>();
  CLI::App* sandbox = app.add_subcommand("sandbox", "create, look at, use and end sandboxes");
  sandbox->require_subcommand(1);

  const auto add = [&](const char* name, const char* help, Verb verb) {
    return add_remote_verb(*sandbox, options, home, exit_code, name, help, verb);
  };
  const auto add_ids = [&](CLI::App* command) {
    command->add_option("id", options->ids, "ids of sandboxes")->required();
    return command;
  };
  const auto add_filters = [&](CLI::App* command) {
    command->add_option("--state", options->state, "running or paused (default: both)");
    command->add_flag_callback(
        "--paused", [options] { options->state = "paused"; }, "the same as --state paused");
    command->add_option("--older-than", options->older_than,
                        "only those that started so long ago (90s, 15m, 2h, 7d)");
  };

  CLI::App* create = add("create", "make a sandbox and print its id", sandbox_create);
  create->add_option("template", options->template_name, "template")->capture_default_str();
  create->add_option("--timeout", options->timeout, "how long it lives")->capture_default_str();
  create->add_option("-m,--metadata", options->metadata, "KEY=VALUE (repeatable)")
      ->allow_extra_args(false);
  create->add_option("-e,--env", options->envs, "KEY=VALUE for its processes (repeatable)")
      ->allow_extra_args(false);
  create->add_flag("--auto-pause", options->auto_pause, "pause instead of ending at its time");
  create->add_flag("--auto-resume", options->auto_resume, "traffic wakes it when it is paused");
  create->add_flag("--no-internet", options->no_internet, "nothing outside can be reached");
  create->add_option("--allow-out", options->allow_out, "address, CIDR or domain (repeatable)")
      ->allow_extra_args(false);
  create->add_option("--deny-out", options->deny_out, "address or CIDR (repeatable)")
      ->allow_extra_args(false);

  add_filters(add("ls", "list sandboxes", sandbox_list));
  add_ids(add("info", "all that the server knows of a sandbox", sandbox_info));
  CLI::App* logs = add_ids(add("logs", "what happened to a sandbox", sandbox_logs));
  logs->add_flag("-f,--follow", options->follow, "go on printing what comes");
  logs->add_option("-n,--lines", options->lines, "how many old lines")->capture_default_str();
  add_ids(add("metrics", "processor, memory and disk over time", sandbox_metrics));
  CLI::App* pause = add_ids(add("pause", "put a sandbox to rest, with its memory", sandbox_pause));
  pause->add_flag("--disk-only", options->disk_only, "keep the disk and end the processes");
  CLI::App* resume = add_ids(add("resume", "wake a sandbox up", sandbox_resume));
  resume->add_option("--timeout", options->timeout, "how long it lives from now")
      ->capture_default_str();
  const auto add_id = [&](CLI::App* command) {
    command->add_option("id", options->id, "id of a sandbox")->required();
    return command;
  };
  CLI::App* snapshot =
      add_id(add("snapshot", "keep what a running sandbox is now, and print the snapshot's id",
                 sandbox_snapshot));
  snapshot->add_option("--name", options->name, "a name for it: NAME or NAME:TAG");
  snapshot->add_flag("--disk-only", options->disk_only,
                     "only the disk; sandboxes made from it boot");
  CLI::App* snapshots = add("snapshots", "list snapshots, the newest first", sandbox_snapshots);
  snapshots->add_option("--sandbox", options->of_sandbox, "only those made of this sandbox");
  snapshots->add_option("--name", options->name, "only those with this name");
  add("rm-snapshot", "delete snapshots", sandbox_remove_snapshot)
      ->add_option("id", options->ids, "ids or names of snapshots")
      ->required();
  CLI::App* fork =
      add_id(add("fork", "copy a running sandbox and print the ids of the copies", sandbox_fork));
  fork->add_option("-n,--count", options->count, "how many (1 to 100)")->capture_default_str();
  fork->add_option("--timeout", options->timeout, "how long each lives")->capture_default_str();
  add_id(add("rollback", "put a running sandbox back to a snapshot", sandbox_rollback))
      ->add_option("snapshot", options->snapshot, "id or name of a snapshot")
      ->required();
  add_ids(add("kill", "end sandboxes and remove all they owned", sandbox_kill));
  add_filters(add("kill-all", "end all sandboxes", sandbox_kill_all));

  const auto add_inside = [&](const char* name, const char* help) {
    CLI::App* command = sandbox->add_subcommand(name, help);
    command->add_option("--home", home, "the server's data directory");
    command->add_option("-u,--user", exec_options->user, "user inside");
    command->add_option("-w,--workdir", exec_options->directory, "directory inside");
    command->add_option("-e,--env", exec_options->envs, "KEY=VALUE (repeatable)")
        ->allow_extra_args(false);
    command->add_option("id", exec_options->id, "id of a sandbox")->required();
    return command;
  };
  CLI::App* exec = add_inside("exec", "run a command inside: exec ID -- COMMAND [ARGUMENT...]");
  exec->add_flag("-t,--tty", exec_options->terminal, "with a terminal");
  exec->prefix_command();
  exec_options->command = std::move(command);
  exec->callback([exec, exec_options, &home, &exit_code] {
    exec_options->home = home;
    if (exec_options->command.empty()) exec_options->command = exec->remaining();
    exit_code = finish(sandbox_exec(*exec_options));
  });
  add_inside("connect", "a shell inside")->callback([exec_options, &home, &exit_code] {
    exec_options->home = home;
    exit_code = finish(sandbox_connect(*exec_options));
  });
}
