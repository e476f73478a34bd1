// Arguments of `atoll sandbox …`.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

// All references outlive the parsing. `command` is what stood behind "--".
void add_sandbox_verbs(CLI::App& app, std::string& home, int& exit_code,
                       std::vector<std::string> command);
