// The schema of a provider's settings: what a form needs to ask for them, and what validation
// checks. Plain data; every provider has a constant table of fields.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "base/result.h"

namespace atl::providers {

enum class FieldType : std::uint8_t { string, integer, boolean };
// Who a setting is for: whoever runs code, or whoever runs the other side.
enum class Scope : std::uint8_t { runtime, deployment };
// What a text must look like.
enum class Format : std::uint8_t { any, url, name };

struct Range {
  std::int64_t min = 0;
  std::int64_t max = 0;
};

using Default = std::variant<std::monostate, std::string_view, std::int64_t, bool>;

struct Field {
  std::string_view name;
  FieldType type = FieldType::string;
  std::string_view label;
  std::string_view description;
  bool required = false;
  bool secret = false;    // kept sealed and never shown
  bool readonly = false;  // a fact of the deployment: its default is its value
  bool leads = false;     // decides which host secrets are sent to, as every URL does
  Scope scope = Scope::runtime;
  Format format = Format::any;
  std::string_view placeholder = {};
  Default otherwise = {};
  std::optional<Range> range = {};     // what a form offers
  std::optional<Range> accepted = {};  // what validation lets through; none: the same
  std::span<const std::string_view> options = {};
  std::string_view prefix = {};       // of a text, when it is not empty
  std::string_view environment = {};  // variables of the server that stand in for it
};
using Schema = std::span<const Field>;

const Field* find_field(Schema schema, std::string_view name);

// {"type": "string", "required": true, "label": ..., "default": ...}
json::object describe(const Field& field);
json::object describe(Schema schema);

// Checks each field and completes the defaults; read-only fields are left out. invalid_argument
// names the field: unknown, missing, of another type, out of range, none of the options, without
// its prefix, read-only. Values of secrets are never part of a message.
Result<json::object> complete(Schema schema, const json::object& config);

// Fields of a completed config.
std::string text_of(const json::object& config, std::string_view name);
std::int64_t number_of(const json::object& config, std::string_view name);

}  // namespace atl::providers
