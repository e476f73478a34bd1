#include "cli/language.h"

#include "net/http.h"

namespace atl::cli {
namespace {

constexpr Language kLanguages[] = {
    {"python", {"py", "python3"}, {".py"}, "python3", true},
    {"javascript", {"js", "node", "nodejs"}, {".js", ".mjs", ".cjs"}, "node", true},
    {"typescript", {"ts"}, {".ts", ".mts"}, "", true},
    {"bash", {"sh", "shell"}, {".sh", ".bash"}, "bash", true},
    {"r", {}, {".r", ".R"}, "", false},
    {"java", {"jshell"}, {".java", ".jsh"}, "", false},
};

}  // namespace

const Language& default_language() { return kLanguages[0]; }

const Language* find_language(std::string_view name) {
  if (name.empty()) return nullptr;
  for (const Language& language : kLanguages) {
    if (net::iequals(language.name, name)) return &language;
    for (std::string_view other : language.names) {
      if (!other.empty() && net::iequals(other, name)) return &language;
    }
  }
  return nullptr;
}

const Language* language_of_file(std::string_view path) {
  for (const Language& language : kLanguages) {
    for (std::string_view suffix : language.suffixes) {
      if (!suffix.empty() && path.ends_with(suffix)) return &language;
    }
  }
  return nullptr;
}

std::string language_names() {
  std::string out;
  for (const Language& language : kLanguages) {
    if (!out.empty()) out += ", ";
    out += language.name;
  }
  return out;
}

}  // namespace atl::cli
