// The name by which a client asks for a template: `[namespace/]alias[:tag]`.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::templates {

struct Reference {
  std::string space;  // empty: none given
  std::string alias;
  std::string tag;  // empty: none given, or `default`, which means the same

  bool operator==(const Reference&) const = default;
};

// ^[a-z0-9-_]+$
bool is_alias(std::string_view text);

// Trims and lowers. invalid_argument: "Invalid template reference: ...".
Result<Reference> parse_reference(std::string_view text);

}  // namespace atl::templates
