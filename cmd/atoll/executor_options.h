#pragma once

#include <CLI/CLI.hpp>

#include "cli/up.h"

// --executor-*: of `up` and `serve`.
void add_executor_options(CLI::App& verb, atl::cli::ExecutorOptions& options);
