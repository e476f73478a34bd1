// The project's one JSON library is Boost.JSON; these are the few helpers that keep call sites
// short.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atl {

namespace json = boost::json;

// Parses a whole document from outside: bounded depth, no trailing bytes. The error names what was
// expected.
Result<json::value> parse_json(std::string_view text);

}  // namespace atl
