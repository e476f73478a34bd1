#include "providers/schema.h"

#include <algorithm>

#include "providers/url.h"

namespace atl::providers {
namespace {

constexpr std::size_t kMaxText = 4096;

std::string_view name_of(FieldType type) {
  switch (type) {
    case FieldType::string:
      return "string";
    case FieldType::integer:
      return "integer";
    case FieldType::boolean:
      return "boolean";
  }
  return "";
}

json::value default_of(const Field& field) {
  if (const auto* text = std::get_if<std::string_view>(&field.otherwise)) return json::value(*text);
  if (const auto* number = std::get_if<std::int64_t>(&field.otherwise)) return *number;
  if (const auto* flag = std::get_if<bool>(&field.otherwise)) return *flag;
  return nullptr;
}

Error wrong(const Field& field, std::string_view what) {
  return make_error(Errc::invalid_argument,
                    "'" + std::string(field.name) + "' " + std::string(what));
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ':' || c == '/';
  });
}

Result<void> check_text(const Field& field, std::string_view text) {
  if (text.size() > kMaxText) return wrong(field, "is too long");
  for (char c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f')
      return wrong(field, "has control characters");
  }
  if (!field.prefix.empty() && !text.starts_with(field.prefix))
    return wrong(field, "must begin with '" + std::string(field.prefix) + "'");
  if (!field.options.empty() &&
      std::find(field.options.begin(), field.options.end(), text) == field.options.end()) {
    std::string all;
    for (std::string_view option : field.options)
      all += (all.empty() ? "" : ", ") + std::string(option);
    return wrong(field, "must be one of " + all);
  }
  if (field.format == Format::name && !is_name(text))
    return wrong(field, "may have letters, digits and -_.:/ only");
  if (field.format == Format::url) {
    if (auto url = parse_url(text); !url.ok()) return wrong(field, url.error().message);
  }
  return {};
}

Result<json::value> check_value(const Field& field, const json::value& value) {
  switch (field.type) {
    case FieldType::string: {
      if (!value.is_string()) return wrong(field, "must be a string");
      ATOLL_TRY(check_text(field, value.get_string()));
      return value;
    }
    case FieldType::boolean:
      if (!value.is_bool()) return wrong(field, "must be true or false");
      return value;
    case FieldType::integer: {
      boost::system::error_code ec;
      const auto number = value.is_number() ? value.to_number<std::int64_t>(ec) : 0;
      if (!value.is_number() || ec) return wrong(field, "must be an integer");
      if (const auto range = field.accepted ? field.accepted : field.range;
          range && (number < range->min || number > range->max)) {
        return wrong(field, "must be between " + std::to_string(range->min) + " and " +
                                std::to_string(range->max));
      }
      return json::value(number);
    }
  }
  return wrong(field, "has no type");
}

bool is_blank(const json::value& value) {
  return value.is_null() || (value.is_string() && value.get_string().empty());
}

}  // namespace

const Field* find_field(Schema schema, std::string_view name) {
  for (const Field& field : schema) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

json::object describe(const Field& field) {
  json::object out;
  out["type"] = name_of(field.type);
  out["required"] = field.required;
  out["label"] = field.label;
  out["description"] = field.description;
  if (!field.placeholder.empty()) out["placeholder"] = field.placeholder;
  if (json::value value = default_of(field); !value.is_null()) out["default"] = std::move(value);
  if (field.range) {
    out["min"] = field.range->min;
    out["max"] = field.range->max;
  }
  if (!field.options.empty()) {
    json::array options;
    for (std::string_view option : field.options) options.emplace_back(option);
    out["options"] = std::move(options);
  }
  if (field.secret) out["secret"] = true;
  if (field.readonly) out["readonly"] = true;
  out["scope"] = field.scope == Scope::runtime ? "runtime" : "deployment";
  return out;
}

json::object describe(Schema schema) {
  json::object out;
  for (const Field& field : schema) out[field.name] = describe(field);
  return out;
}

Result<json::object> complete(Schema schema, const json::object& config) {
  for (const auto& item : config) {
    const Field* field = find_field(schema, item.key());
    if (field == nullptr) {
      return make_error(Errc::invalid_argument,
                        "there is no setting '" + std::string(item.key()) + "'");
    }
    // A form may send back what it was shown.
    if (field->readonly && !item.value().is_null() && item.value() != default_of(*field))
      return wrong(*field, "is read-only: it tells how the other side is deployed");
  }
  json::object out;
  for (const Field& field : schema) {
    if (field.readonly) continue;
    const json::value* given = config.if_contains(field.name);
    if (given != nullptr && !is_blank(*given)) {
      ATOLL_TRY_ASSIGN(out[field.name], check_value(field, *given));
    } else if (json::value value = default_of(field); !value.is_null()) {
      out[field.name] = std::move(value);
    } else if (field.required) {
      return wrong(field, "is required");
    }
  }
  return out;
}

std::string text_of(const json::object& config, std::string_view name) {
  const json::value* value = config.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::int64_t number_of(const json::object& config, std::string_view name) {
  const json::value* value = config.if_contains(name);
  return value != nullptr && value->is_int64() ? value->get_int64() : 0;
}

}  // namespace atl::providers
