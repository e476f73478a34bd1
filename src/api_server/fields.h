// Typed fields of JSON request bodies. Errors are invalid_argument, "validation error: ...", and
// name the field. Null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "store/records.h"

namespace atl::api {

Error validation(std::string_view what);
Error wrong_type(std::string_view field, std::string_view expected);

enum class Body { required, optional };
// The document as an object; a missing optional body is an empty one.
Result<json::object> parse_object(std::string_view body, Body presence);

// Null: absent.
const json::value* present(const json::object& object, std::string_view field);
Result<std::optional<bool>> optional_bool(const json::object& object, std::string_view field);
Result<bool> bool_or(const json::object& object, std::string_view field, bool otherwise);
// A 32-bit integer; JSON has one kind of number, so 300.0 is one too.
Result<std::optional<std::int64_t>> optional_int(const json::object& object,
                                                 std::string_view field);
Result<std::string> required_string(const json::object& object, std::string_view field);
Result<const json::object*> optional_object(const json::object& object, std::string_view field);
Result<store::StringMap> string_map(const json::object& object, std::string_view field);

}  // namespace atl::api
