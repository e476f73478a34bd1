#include "provider_verbs.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/provider.h"
#include "remote_verb.h"

namespace {

using namespace atl::cli;

using Verb = atl::Result<int> (*)(const ProviderOptions&);

}  // namespace

void add_provider_verbs(CLI::App& app, std::string& home, int& exit_code) {
  auto options = std::make_shared<ProviderOptions>();
  CLI::App* provider =
      app.add_subcommand("provider", "where else code can be run: settings, tests, runs");
  provider->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, Verb verb) {
    return add_remote_verb(*provider, options, home, exit_code, name, help, verb);
  };
  const auto add_id = [&](CLI::App* command) {
    command->add_option("id", options->id, "id of a provider")->required();
    return command;
  };
  const auto add_settings = [&](CLI::App* command) {
    command->add_option("settings", options->settings, "NAME=VALUE; an empty value removes it");
    command
        ->add_option("--secret", options->secrets,
                     "name of a secret that is read from stdin, one per line (repeatable)")
        ->allow_extra_args(false);
    command
        ->add_option("--secret-env", options->secrets_from_environment,
                     "NAME=VARIABLE: a secret that an environment variable holds (repeatable)")
        ->allow_extra_args(false);
  };
  add("ls", "list providers", provider_list);
  add_id(add("show", "settings of a provider, with what each means", provider_show));
  add_settings(add_id(add("set", "change settings; those not named stay", provider_set)));
  add_id(add("unset", "forget the settings of a provider", provider_unset));
  add("use", "choose the active provider; 'none' for none", provider_use)
      ->add_option("id", options->id, "id of a provider")
      ->required();
  add_settings(add_id(
      add("test", "initialise, create, execute a print, destroy; settings as in `set`, unsaved",
          provider_test)));
  CLI::App* exec = add("exec", "run code by a provider, in an instance of its own", provider_exec);
  exec->add_option("code", options->code, "the code, or the name of a file; '-' reads stdin")
      ->required();
  exec->add_option("-p,--provider", options->id, "id of a provider (default: the active one)");
  exec->add_option("-l,--language", options->language, "python, javascript or bash");
  exec->add_option("--timeout", options->timeout, "seconds after which the code is stopped");
  exec->add_option("--template", options->template_name, "template, where the provider has them");
  exec->add_option("--arguments", options->arguments, "JSON object: the arguments of main()");
}
