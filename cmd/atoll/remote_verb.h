// A verb of a group (`atoll session get`) that works on a server: its own or the environment's.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "finish.h"

// `options` has `home` and `json`, and lives as long as the application; `home` and `exit_code`
// outlive it.
template <class Options>
CLI::App* add_remote_verb(CLI::App& group, std::shared_ptr<Options> options, std::string& home,
                          int& exit_code, const char* name, const char* help,
                          atl::Result<int> (*verb)(const Options&)) {
  CLI::App* command = group.add_subcommand(name, help);
  command->add_option("--home", home,
                      "the server's data directory (default: E2B_API_URL and "
                      "E2B_API_KEY, $ATOLL_HOME or /var/lib/atoll)");
  command->add_flag("--json", options->json, "print JSON");
  command->callback([options, verb, &home, &exit_code] {
    options->home = home;
    exit_code = finish(verb(*options));
  });
  return command;
}
