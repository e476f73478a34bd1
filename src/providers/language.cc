#include "providers/language.h"

#include <utility>

#include "net/http.h"

namespace atl::providers {

std::optional<Language> parse_language(std::string_view name) {
  static constexpr std::pair<std::string_view, Language> kNames[] = {
      {"", Language::python},
      {"python", Language::python},
      {"python3", Language::python},
      {"py", Language::python},
      {"javascript", Language::javascript},
      {"js", Language::javascript},
      {"nodejs", Language::javascript},
      {"node", Language::javascript},
      {"bash", Language::bash},
      {"sh", Language::bash},
      {"shell", Language::bash},
  };
  for (const auto& [known, language] : kNames) {
    if (net::iequals(known, name)) return language;
  }
  return std::nullopt;
}

std::string_view name_of(Language language) {
  switch (language) {
    case Language::python:
      return "python";
    case Language::javascript:
      return "javascript";
    case Language::bash:
      return "bash";
  }
  return "";
}

}  // namespace atl::providers
