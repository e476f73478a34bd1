#include "mcp_verb.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/mcp.h"
#include "finish.h"

void add_mcp_verb(CLI::App& app, std::string& home, int& exit_code) {
  auto options = std::make_shared<atl::cli::McpOptions>();
  CLI::App* verb =
      app.add_subcommand("mcp", "tools for a model over stdin and stdout (MCP), by a server");
  verb->add_option("--home", home,
                   "the server's data directory (default: E2B_API_URL and E2B_API_KEY, "
                   "$ATOLL_HOME or /var/lib/atoll)");
  verb->add_option("--session", options->session,
                   "key of the session: who names it again gets the same sandbox");
  verb->add_option("--template", options->template_name, "template of a sandbox that is made");
  verb->add_option("--workspace", options->workspace, "name of the workspace (default: default)");
  verb->add_flag("--no-internet", options->no_internet, "nothing outside can be reached");
  CLI::Option* keep =
      verb->add_flag("--keep", options->keep, "leave the sandbox running at the end");
  verb->add_flag("--remove", options->remove, "end the sandbox at the end (default: pause it)")
      ->excludes(keep);
  verb->callback([options, &home, &exit_code] {
    options->home = home;
    exit_code = finish(atl::cli::mcp_bridge(*options));
  });
}
