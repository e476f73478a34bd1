#include "mcp/schema.h"

#include <fmt/format.h>

#include <algorithm>

#include "mcp_definitions.inc"  // kDefinitions, made from api/mcp/*.json by CMakeLists.txt

namespace atl::mcp {
namespace {

Error wrong(std::string message) { return make_error(Errc::invalid_argument, std::move(message)); }

std::int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

std::int64_t bound(const json::object& rule, std::string_view name, std::int64_t missing) {
  const json::value* value = rule.if_contains(name);
  return value != nullptr && value->is_int64() ? value->get_int64() : missing;
}

Result<void> check_string(std::string_view name, const json::object& rule,
                          const json::value& value) {
  if (!value.is_string()) return wrong(fmt::format("'{}' must be a string", name));
  const std::string_view text(value.get_string());
  const std::int64_t length = characters(text);
  if (length < bound(rule, "minLength", 0)) return wrong(fmt::format("'{}' is empty", name));
  const std::int64_t most = bound(rule, "maxLength", INT64_MAX);
  if (length > most) return wrong(fmt::format("'{}' is longer than {} characters", name, most));
  return {};
}

// A number that models write as 30.0 is an integer, as JSON Schema says.
Result<void> check_integer(std::string_view name, const json::object& rule, json::value& value) {
  if (value.is_double()) {
    const double number = value.get_double();
    if (number >= -9007199254740992.0 && number <= 9007199254740992.0 &&
        number == double(std::int64_t(number)))
      value = std::int64_t(number);
  }
  const std::int64_t least = bound(rule, "minimum", INT64_MIN);
  const std::int64_t most = bound(rule, "maximum", INT64_MAX);
  if (!value.is_int64() || value.get_int64() < least || value.get_int64() > most) {
    return wrong(fmt::format("'{}' must be an integer from {} to {}", name, least, most));
  }
  return {};
}

Result<void> check_one(std::string_view name, const json::object& rule, json::value& value) {
  const std::string_view type(rule.at("type").as_string());
  if (type == "string") return check_string(name, rule, value);
  if (type == "integer") return check_integer(name, rule, value);
  if (type == "boolean" && !value.is_bool())
    return wrong(fmt::format("'{}' must be true or false", name));
  return {};
}

std::string names_of(const json::object& properties) {
  std::string out;
  for (const auto& property : properties) {
    if (!out.empty()) out += ", ";
    out += std::string_view(property.key());
  }
  return out.empty() ? "none" : out;
}

json::array parse_definitions() {
  json::array out;
  for (const char* text : kDefinitions) {
    auto parsed = parse_json(text);
    ATOLL_CHECK(parsed.ok() && parsed->is_object());
    out.push_back(std::move(*parsed));
  }
  return out;
}

}  // namespace

Result<json::object> check_arguments(const json::object& schema, json::object arguments) {
  const json::object& properties = schema.at("properties").as_object();
  for (auto& argument : arguments) {
    const json::value* rule = properties.if_contains(argument.key());
    if (rule == nullptr) {
      return wrong(fmt::format("there is no argument '{}'; there are: {}",
                               std::string_view(argument.key()), names_of(properties)));
    }
  }
  for (const auto& property : properties) {
    const json::object& rule = property.value().as_object();
    const std::string_view name(property.key());
    json::value* value = arguments.if_contains(name);
    // Models write null for what they leave out.
    if (value != nullptr && value->is_null()) {
      arguments.erase(name);
      value = nullptr;
    }
    if (value != nullptr) {
      ATOLL_TRY(check_one(name, rule, *value));
    } else if (const json::value* other = rule.if_contains("default")) {
      arguments[name] = *other;
    }
  }
  for (const json::value& name : schema.at("required").as_array()) {
    if (!arguments.contains(name.as_string()))
      return wrong(fmt::format("the argument '{}' is missing", std::string_view(name.as_string())));
  }
  return arguments;
}

const json::array& tool_definitions() {
  static const json::array definitions = parse_definitions();
  return definitions;
}

const json::object* find_definition(std::string_view name) {
  for (const json::value& definition : tool_definitions()) {
    if (definition.as_object().at("name").as_string() == name) return &definition.as_object();
  }
  return nullptr;
}

std::string_view text_argument(const json::object& arguments, std::string_view name) {
  const json::value* value = arguments.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

std::int64_t number_argument(const json::object& arguments, std::string_view name) {
  return arguments.at(name).as_int64();
}

bool flag_argument(const json::object& arguments, std::string_view name) {
  return arguments.at(name).as_bool();
}

}  // namespace atl::mcp
