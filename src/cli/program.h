// Runs a program text as a command inside a sandbox whose template has no code interpreter, and
// copies what it prints to this process's stdout and stderr.
#pragma once

#include <string>

#include "cli/inside.h"
#include "cli/language.h"

namespace atl::cli {

// The exit status of the code, 128 + n when signal n ended it. Errors: the agent or the connection
// failed; failed_precondition: no program for the language.
net::Task<Result<int>> run_program(const Inside& inside, const Language& language,
                                   std::string code);

}  // namespace atl::cli
