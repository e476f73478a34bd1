// `atoll exec`.
#pragma once

#include <string>

namespace CLI {
class App;
}

void add_exec_verb(CLI::App& app, std::string& home, int& exit_code);
