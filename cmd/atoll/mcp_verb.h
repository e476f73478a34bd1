// Arguments of `atoll mcp`.
#pragma once

#include <CLI/App.hpp>
#include <string>

// All references outlive the parsing.
void add_mcp_verb(CLI::App& app, std::string& home, int& exit_code);
