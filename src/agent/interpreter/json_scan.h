// Checks JSON text without building anything of it, and shows the members of its outermost object.
//
// Lines of runners go to clients as they are and request bodies go to runners as they are, so their
// values are never needed, only that they are well formed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::agent::interpreter {

struct JsonMember {
  std::string_view key;    // as written, without its quotes
  std::string_view value;  // as written: quotes, braces and all
};
using JsonMembers = std::vector<JsonMember>;

enum class JsonForm {
  line,     // from a runner: ASCII only, no space around it; half surrogate pairs are let through
  request,  // from a client: UTF-8; half surrogate pairs are refused
};

inline constexpr int kJsonDepth = 512;

enum class JsonFault { none, malformed, not_an_object, too_many_members };

// Fills `members` in the order of the text; a key may come twice. Values may be nested kJsonDepth
// deep.
JsonFault scan_object(std::string_view text, JsonForm form, std::size_t most, JsonMembers& members);

// The last member of that name; empty if there is none.
std::string_view find_member(const JsonMembers& members, std::string_view key);

inline bool is_json_string(std::string_view value) { return !value.empty() && value[0] == '"'; }
inline bool is_json_null(std::string_view value) { return value == "null"; }
// The text of a string that was scanned; nullopt for other values.
std::optional<std::string> json_text(std::string_view value);

}  // namespace atl::agent::interpreter
