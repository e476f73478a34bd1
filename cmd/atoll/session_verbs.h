// Arguments of `atoll session …`.
#pragma once

#include <CLI/App.hpp>
#include <string>

// All references outlive the parsing.
void add_session_verbs(CLI::App& app, std::string& home, int& exit_code);
