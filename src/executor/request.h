// The body of POST /run, read and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace atl::executor {

enum class Language : std::uint8_t { python, nodejs };
std::string_view to_string(Language language);

inline constexpr std::size_t kMaxBody = 32 << 20;

struct RunRequest {
  Language language = Language::python;
  // The whole body as it came: what runs inside reads code and arguments from it, so that no number
  // or text changes on its way.
  std::string body;
};

// What is wrong with a body, as FastAPI tells it (422): the field, and why.
struct Refused {
  std::string field;  // empty: the body itself
  std::string type;   // "missing", "value_error", "json_invalid" ...
  std::string message;
};

std::variant<RunRequest, Refused> decode_run(std::string body);

// {"code", "message", "detail": [{"type", "loc", "msg"}]}
std::string encode_refused(const Refused& refused);

// Strict: the standard alphabet, whole groups of four, padding at the end, nothing else; and what
// comes out is UTF-8. invalid_argument says what is not.
Result<std::string> decode_code(std::string_view code_b64);

}  // namespace atl::executor
