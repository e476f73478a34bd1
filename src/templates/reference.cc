#include "templates/reference.h"

#include <algorithm>

namespace atl::templates {
namespace {

constexpr std::size_t kMaxReference = 256;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

bool is_tag(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_word(c) || c == '.'; });
}

Error invalid(std::string_view why) {
  return make_error(Errc::invalid_argument, "Invalid template reference: " + std::string(why));
}

}  // namespace

bool is_alias(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_word);
}

Result<Reference> parse_reference(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return invalid("it is empty");
  text = text.substr(first, text.find_last_not_of(kBlank) - first + 1);
  if (text.size() > kMaxReference) return invalid("it is longer than 256 characters");
  std::string lowered(text);
  for (char& c : lowered) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }

  Reference reference;
  std::string_view rest = lowered;
  if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
    reference.tag = rest.substr(colon + 1);
    if (!is_tag(reference.tag))
      return invalid("the tag may only have letters, digits, '-', '_' and '.'");
    if (reference.tag == "default") reference.tag.clear();
    rest = rest.substr(0, colon);
  }
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    reference.space = rest.substr(0, slash);
    if (!is_alias(reference.space))
      return invalid("the namespace may only have letters, digits, '-' and '_'");
    rest = rest.substr(slash + 1);
  }
  if (!is_alias(rest)) return invalid("the name may only have letters, digits, '-' and '_'");
  reference.alias = rest;
  return reference;
}

}  // namespace atl::templates
