// Text encodings that several layers need: base64, hex, percent-encoding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace atl {

std::string base64_encode(std::string_view bytes);           // standard alphabet, padded
std::optional<std::string> base64_decode(std::string_view);  // either alphabet, padding optional
std::string hex_encode(std::string_view bytes);              // lower case
// %XX decoding; `plus_is_space` for form-encoded queries. nullopt on a malformed escape.
enum class PlusIs { plus, space };
std::optional<std::string> percent_decode(std::string_view text, PlusIs plus = PlusIs::plus);
std::string percent_encode(std::string_view text);  // everything but unreserved characters
bool is_valid_utf8(std::string_view text);

}  // namespace atl
