// `atoll run`: code in a fresh sandbox with an engine of its own; no server needed.
//
// With --keep the sandbox is made on the running server instead, and stays there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/language.h"

namespace atl::cli {

struct RunOptions {
  std::string home;               // of --home; empty: as the environment says
  std::string code;               // text, a file's name, or empty / "-" for stdin
  std::string file;               // --file: surely a file's name
  std::string language;           // empty: by the file's name, else Python
  std::vector<std::string> envs;  // KEY=VALUE
  std::string template_name;      // empty: one that has the language
  std::string output = "atoll-output";
  unsigned timeout_seconds = 300;
  bool json = false;
  bool keep = false;
  bool timings = false;
};

// The exit status of the code; 124 when it ran into the timeout.
Result<int> run_code(const RunOptions& options);

// ---- shared with `atoll repl` ----
Result<std::map<std::string, std::string>> parse_envs(const std::vector<std::string>& pairs);
Result<const Language*> choose_language(const std::string& name, const Language* fallback);
// The template of the option, else the smallest one that has the language.
Result<std::string> choose_template(const RunOptions& options, const Language& language);

}  // namespace atl::cli
