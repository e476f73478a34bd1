// Arguments of a tool against its JSON Schema.
//
// The schemas in api/mcp are the contract, and what is checked: types, bounds, defaults and
// required names stand there and nowhere else. Of JSON Schema only what they use is understood:
// object, string, integer, boolean, minimum, maximum, minLength, maxLength, enum, default.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace atl::mcp {

// The arguments with their defaults filled in. invalid_argument: says which and why.
Result<json::object> check_arguments(const json::object& schema, json::object arguments);

// What api/mcp/*.json say, in order of their names: {name, title, description, inputSchema,
// outputSchema, annotations}.
const json::array& tool_definitions();
// null: there is no such tool.
const json::object* find_definition(std::string_view name);

// Of checked arguments: they are there and of that type.
std::string_view text_argument(const json::object& arguments, std::string_view name);
std::int64_t number_argument(const json::object& arguments, std::string_view name);
bool flag_argument(const json::object& arguments, std::string_view name);

}  // namespace atl::mcp
