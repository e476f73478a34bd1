#include "api_server/fields.h"

#include <limits>

namespace atl::api {
namespace {

constexpr std::size_t kMaxMapEntries = 1'000;

}  // namespace

Error validation(std::string_view what) {
  return make_error(Errc::invalid_argument, "validation error: " + std::string(what));
}

Error wrong_type(std::string_view field, std::string_view expected) {
  return validation("'" + std::string(field) + "' must be " + std::string(expected));
}

Result<json::object> parse_object(std::string_view body, Body presence) {
  const bool blank = body.find_first_not_of(" \t\r\n") == std::string_view::npos;
  if (blank && presence == Body::optional) return json::object();
  if (blank) return validation("a JSON body is required");
  auto document = parse_json(body);
  if (!document.ok()) return validation("request body has an error: " + document.error().message);
  if (document->is_null() && presence == Body::optional) return json::object();
  if (!document->is_object()) return validation("request body must be a JSON object");
  return std::move(document->get_object());
}

const json::value* present(const json::object& object, std::string_view field) {
  const json::value* value = object.if_contains(field);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::optional<bool>> optional_bool(const json::object& object, std::string_view field) {
  const json::value* value = present(object, field);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_bool()) return wrong_type(field, "a boolean");
  return std::optional<bool>(value->get_bool());
}

Result<bool> bool_or(const json::object& object, std::string_view field, bool otherwise) {
  ATOLL_TRY_ASSIGN(const std::optional<bool> value, optional_bool(object, field));
  return value.value_or(otherwise);
}

Result<std::optional<std::int64_t>> optional_int(const json::object& object,
                                                 std::string_view field) {
  const json::value* value = present(object, field);
  if (value == nullptr) return std::optional<std::int64_t>();
  if (!value->is_number()) return wrong_type(field, "an integer");
  boost::system::error_code ec;
  const auto number = value->to_number<std::int64_t>(ec);
  if (ec || number < std::numeric_limits<std::int32_t>::min() ||
      number > std::numeric_limits<std::int32_t>::max()) {
    return wrong_type(field, "a 32-bit integer");
  }
  return std::optional<std::int64_t>(number);
}

Result<std::string> required_string(const json::object& object, std::string_view field) {
  const json::value* value = present(object, field);
  if (value == nullptr) return validation("property '" + std::string(field) + "' is missing");
  if (!value->is_string()) return wrong_type(field, "a string");
  return std::string(value->get_string());
}

Result<const json::object*> optional_object(const json::object& object, std::string_view field) {
  const json::value* value = present(object, field);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) return wrong_type(field, "an object");
  return &value->get_object();
}

Result<store::StringMap> string_map(const json::object& object, std::string_view field) {
  store::StringMap map;
  ATOLL_TRY_ASSIGN(const json::object* entries, optional_object(object, field));
  if (entries == nullptr) return map;
  if (entries->size() > kMaxMapEntries)
    return validation("'" + std::string(field) + "' has too many entries");
  for (const auto& entry : *entries) {
    if (!entry.value().is_string()) {
      return wrong_type(std::string(field) + "." + std::string(entry.key()), "a string");
    }
    map.emplace(std::string(entry.key()), std::string(entry.value().get_string()));
  }
  return map;
}

}  // namespace atl::api
