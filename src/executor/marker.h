// The marker: a line on stdout by which code says its result itself, as RAGFlow's own runners do:
// `__RAGFLOW_RESULT__:` + base64 of {"present": true, "value": ..., "type": "json"}.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace atl::executor {

inline constexpr std::string_view kMarker = "__RAGFLOW_RESULT__:";

struct Unmarked {
  std::string out;                    // without the lines that were markers
  std::optional<std::string> result;  // the last one that had a value: the whole object, as JSON
};

// A line that does not decode stays where it is.
Unmarked cut_markers(std::string out);

}  // namespace atl::executor
