// Runs a program text inside a sandbox through its agent and copies what it prints to this
// process's stdout and stderr.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/runtime.h"

namespace atl::cli {

enum class Language { python, bash, javascript };

// "python", "py", "bash", "sh", "javascript", "js", "node"; nullopt for others.
std::optional<Language> parse_language(std::string_view name);
// By the ending of a file's name; nullopt if it says nothing.
std::optional<Language> language_of_file(std::string_view path);

struct Program {
  std::string code;
  Language language = Language::python;
  std::map<std::string, std::string> envs;
  std::optional<std::chrono::milliseconds> timeout;
};

// The exit status of the code, 128 + n when signal n ended it. Errors: the agent or the connection
// failed, or deadline_exceeded.
net::Task<Result<int>> run_program(runtime::Runtime& runtime, SandboxId id,
                                   std::string access_token, Program program);

}  // namespace atl::cli
