// Arguments and results of code: the convention that `main(**arguments)` (Python) or
// `main(arguments)` (JavaScript) is called and its value is the result.
//
// Where we start the program ourselves a small runner beside it calls main() and leaves the value
// in a file. Where we can only hand over code, the code prints one line on stdout, the marker, with
// base64 of {"present": true, "value": ..., "type": "json"}. Either way a marker that the code
// printed itself is understood.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "providers/language.h"

namespace atl::providers {

inline constexpr std::string_view kMarker = "__RAGFLOW_RESULT__:";

struct Extracted {
  std::string text;  // without the lines that were markers
  std::optional<json::value> value;
  std::string type;
};
// The last marker wins. A line that does not decode stays.
Extracted extract_result(std::string_view out);

// Does the code define main() at its top level? By the look of its lines.
bool defines_main(Language language, std::string_view code);

struct SourceFile {
  std::string name;
  std::string content;
};

// Files for a directory of their own, and the command line over them; `directory` is its path. With
// `calls_main` a file "result.json" may be there afterwards: {"present", "value", "type",
// "memory_used_kb"}.
struct Program {
  std::vector<SourceFile> files;
  std::string program;
  std::vector<std::string> arguments;
  bool calls_main = false;
};
// invalid_argument: arguments for a language without main().
Result<Program> make_program(Language language, std::string_view code,
                             const json::object& arguments, const std::string& directory);

// One text that prints the marker by itself when it defines main().
Result<std::string> with_marker(Language language, std::string_view code,
                                const json::object& arguments);

// For a side that always calls main(): an empty one is added where there is none.
std::string with_main(Language language, std::string_view code);

}  // namespace atl::providers
