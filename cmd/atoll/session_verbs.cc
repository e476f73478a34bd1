#include "session_verbs.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/session.h"
#include "remote_verb.h"

namespace {

using namespace atl::cli;

using Verb = atl::Result<int> (*)(const SessionOptions&);

}  // namespace

void add_session_verbs(CLI::App& app, std::string& home, int& exit_code) {
  // The lambdas keep this alive as long as the application.
  auto options = std::make_shared<SessionOptions>();
  CLI::App* session =
      app.add_subcommand("session", "one sandbox per conversation: get, ls, info, pause, rm");
  session->require_subcommand(1);

  const auto add = [&](const char* name, const char* help, Verb verb) {
    return add_remote_verb(*session, options, home, exit_code, name, help, verb);
  };
  const auto add_keys = [&](CLI::App* command) {
    command->add_option("key", options->keys, "keys of sessions")->required();
    return command;
  };

  CLI::App* get = add_keys(
      add("get", "the sandbox of a session: running, resumed or made; prints its id", session_get));
  get->add_option("--template", options->template_name,
                  "template of a new sandbox (default: code-interpreter-v1)");
  get->add_option("--timeout", options->timeout, "how long a run lasts at most (default: 15m)");
  get->add_option("--pause-after", options->pause_after,
                  "idle that long, it is paused; 0: never (default: 15m)");
  get->add_option("--ttl", options->ttl, "unused that long, it is forgotten (default: 12h)");
  get->add_option("--workspace", options->workspace, "name of its workspace");
  get->add_option("-m,--metadata", options->metadata, "KEY=VALUE (repeatable)")
      ->allow_extra_args(false);
  get->add_option("-e,--env", options->envs, "KEY=VALUE for a new sandbox (repeatable)")
      ->allow_extra_args(false);
  get->add_flag("--no-internet", options->no_internet,
                "nothing outside can be reached from a new sandbox");
  add("ls", "list sessions", session_list);
  add_keys(add("info", "all that the server knows of a session", session_info));
  add_keys(add("pause", "put the sandbox of a session to rest, with its memory", session_pause));
  add_keys(add("rm", "end the sandbox of a session and forget the key", session_remove));
}
