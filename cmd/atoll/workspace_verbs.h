// `atoll workspace …` on the command line.
#pragma once

#include <string>

namespace CLI {
class App;
}

// `home` and `exit_code` outlive the application.
void add_workspace_verbs(CLI::App& app, std::string& home, int& exit_code);
