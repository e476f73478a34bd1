// The members of a JSON object from outside. Texts of many megabytes are checked whole, but no tree
// of values is made of them: it would take many times their size.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace atl::executor {

struct Member {
  json::kind kind = json::kind::null;
  std::string text;  // of a string
};

struct Members {
  bool is_object = false;
  std::map<std::string, Member, std::less<>> named;  // those that were asked for and are there
  // null: it is not there.
  const Member* find(std::string_view name) const;
};

// Of a name that comes twice the last one counts. invalid_argument as of parse_json.
Result<Members> read_members(std::string_view text, std::initializer_list<std::string_view> names);

}  // namespace atl::executor
