#include "agent/interpreter/languages.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "agent/spawn.h"
#include "base/json.h"

namespace atl::agent::interpreter {
namespace {

constexpr std::string_view kKernels = "{kernels}";

const std::vector<Language>& table() {
  static const std::vector<Language> languages = {
      {"python",
       {"/usr/bin/python3", "{kernels}/python/main.py"},
       "python/main.py",
       Arguments::main},
      {"javascript",
       {"node", "{kernels}/js/main.cjs", "javascript"},
       "js/main.cjs",
       Arguments::main},
      {"typescript",
       {"node", "{kernels}/js/main.cjs", "typescript"},
       "js/main.cjs",
       Arguments::main},
      {"bash", {"/usr/bin/python3", "-IS", "{kernels}/bash/main.py"}, "bash/main.py"},
      {"r", {"Rscript", "--vanilla", "{kernels}/r/main.R"}, "r/main.R"},
      {"java", {"/usr/bin/python3", "-IS", "{kernels}/java/start.py"}, "java/start.py"},
  };
  return languages;
}

struct Alias {
  std::string_view from;
  std::string_view to;
};
constexpr std::array<Alias, 6> kAliases = {{{"", "python"},
                                            {"python3", "python"},
                                            {"js", "javascript"},
                                            {"node", "javascript"},
                                            {"nodejs", "javascript"},
                                            {"ts", "typescript"}}};

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

std::string normalise_language(std::string_view given) {
  while (!given.empty() && is_space(given.front())) given.remove_prefix(1);
  while (!given.empty() && is_space(given.back())) given.remove_suffix(1);
  std::string name(given);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  for (const Alias& alias : kAliases) {
    if (name == alias.from) return std::string(alias.to);
  }
  return name;
}

const Language* find_language(std::string_view name) {
  for (const Language& language : table()) {
    if (language.name == name) return &language;
  }
  return nullptr;
}

std::vector<std::string> command_line(const Language& language, const std::string& kernels) {
  std::vector<std::string> out;
  for (const std::string_view word : language.command) {
    std::string text(word);
    if (const std::size_t at = text.find(kKernels); at != std::string::npos)
      text.replace(at, kKernels.size(), kernels);
    out.push_back(std::move(text));
  }
  return out;
}

Result<void> check_installed(const Language& language, const std::string& kernels,
                             std::string_view path) {
  const std::string program(language.command.front());
  const auto candidates = path_candidates(program, path);
  if (std::none_of(candidates.begin(), candidates.end(), [](const std::string& candidate) {
        struct stat st{};
        return ::stat(candidate.c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
               ::access(candidate.c_str(), X_OK) == 0;
      })) {
    return make_error(Errc::not_found, "the program " + program + " is not installed");
  }
  const std::string runner = kernels + "/" + std::string(language.runner);
  if (::access(runner.c_str(), R_OK) != 0)
    return make_error(Errc::not_found, "the runner " + runner + " is missing");
  return {};
}

Result<std::vector<std::string>> load_languages(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return make_error(Errc::not_found, "cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  ATOLL_TRY_ASSIGN(const json::value document, parse_json(text.str()));
  const json::value* list =
      document.is_object() ? document.as_object().if_contains("languages") : nullptr;
  if (list == nullptr || !list->is_array())
    return make_error(Errc::invalid_argument, path + ": \"languages\" must be a list");
  std::vector<std::string> out;
  for (const json::value& entry : list->as_array()) {
    if (!entry.is_string())
      return make_error(Errc::invalid_argument, path + ": a language must be a string");
    out.emplace_back(entry.as_string());
  }
  return out;
}

}  // namespace atl::agent::interpreter
