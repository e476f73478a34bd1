// Which languages there are, what clients call them and which program runs them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atl::agent::interpreter {

enum class Arguments { none, main };  // whether `arguments` are passed to a function `main`

struct Language {
  std::string_view name;
  // The runner's command line; "{kernels}" stands for the directory of runners.
  std::vector<std::string_view> command;
  std::string_view runner;  // the file of the command that must be there, below that directory
  Arguments arguments = Arguments::none;
  std::vector<std::string_view> variables{};  // NAME=value, unless the sandbox has set NAME
};

// Trimmed, in lower case, without aliases; "" is Python (wire/code-interpreter.md §4).
std::string normalise_language(std::string_view given);
// By its normalised name; null: there is no such language.
const Language* find_language(std::string_view name);

std::vector<std::string> command_line(const Language& language, const std::string& kernels);
// Errors: not_found when the program or the runner is missing, for people. `path` is a PATH.
Result<void> check_installed(const Language& language, const std::string& kernels,
                             std::string_view path);

// `{"languages":["python",...]}` of a template. Errors: not_found, invalid_argument.
Result<std::vector<std::string>> load_languages(const std::string& path);

}  // namespace atl::agent::interpreter
