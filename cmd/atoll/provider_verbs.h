// Arguments of `atoll provider …`.
#pragma once

#include <CLI/App.hpp>
#include <string>

// All references outlive the parsing.
void add_provider_verbs(CLI::App& app, std::string& home, int& exit_code);
