#include "agent/interpreter/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/interpreter/json_scan.h"
#include "agent/interpreter/lines.h"

namespace atl::agent::interpreter {
namespace {

constexpr std::size_t kMembers = 64;
constexpr std::size_t kVariables = 4096;
constexpr std::size_t kEchoed = 64 << 10;

// `loc` is JSON text without brackets; `input` is what was given, as JSON text.
std::string detail(std::string_view type, std::string_view loc, std::string_view message,
                   std::string_view input) {
  if (input.empty() || input.size() > kEchoed) input = "null";
  return fmt::format(R"({{"detail":[{{"type":"{}","loc":[{}],"msg":"{}","input":{}}}]}})", type,
                     loc, message, input);
}

std::string quoted_field(std::string_view field) { return fmt::format("\"body\",\"{}\"", field); }

// Empty: it is an object, and `members` are its own.
std::string scan_body(std::string_view body, JsonMembers& members) {
  switch (scan_object(body, JsonForm::request, kMembers, members)) {
    case JsonFault::none:
      return {};
    case JsonFault::not_an_object:
      return detail("model_attributes_type", "\"body\"",
                    "Input should be a valid dictionary or object to extract fields from", body);
    case JsonFault::too_many_members:
      return detail("too_long", "\"body\"", "The object has too many fields", "");
    case JsonFault::malformed:
      break;
  }
  return detail("json_invalid", "\"body\"", "JSON decode error", "{}");
}

// A string that may be missing or null.
std::string optional_text(const JsonMembers& members, std::string_view field, std::string& out) {
  const std::string_view value = find_member(members, field);
  if (value.empty() || is_json_null(value)) return {};
  if (!is_json_string(value))
    return detail("string_type", quoted_field(field), "Input should be a valid string", value);
  out = *json_text(value);
  return {};
}

bool is_variable_name(std::string_view name) {
  return !name.empty() && name.find_first_of(std::string_view("=\0", 2)) == std::string_view::npos;
}

// An object of strings that may be missing or null; `raw` is then empty.
std::string variables(const JsonMembers& members, std::string_view& raw,
                      std::map<std::string, std::string>* out) {
  const std::string_view value = find_member(members, "env_vars");
  if (value.empty() || is_json_null(value)) return {};
  const std::string loc = quoted_field("env_vars");
  JsonMembers entries;
  switch (scan_object(value, JsonForm::request, kVariables, entries)) {
    case JsonFault::none:
      break;
    case JsonFault::too_many_members:
      return detail("too_long", loc, "There are too many variables", "");
    default:
      return detail("dict_type", loc, "Input should be a valid dictionary", value);
  }
  for (const JsonMember& entry : entries) {
    const std::string where = loc + ",\"" + std::string(entry.key) + "\"";
    if (!is_json_string(entry.value))
      return detail("string_type", where, "Input should be a valid string", entry.value);
    const std::string name = *json_text("\"" + std::string(entry.key) + "\"");
    std::string text = *json_text(entry.value);
    if (!is_variable_name(name) || text.find('\0') != std::string::npos)
      return detail("value_error", where,
                    "Value error, not a name or value of an environment variable", entry.value);
    if (out != nullptr) (*out)[name] = std::move(text);
  }
  if (!entries.empty()) raw = value;
  return {};
}

// Between the tokens of JSON, every space is as good as another; a line must not hold a break.
void append_in_one_line(std::string& out, std::string_view json) {
  const std::size_t begin = out.size();
  out += json;
  std::replace_if(
      out.begin() + std::ptrdiff_t(begin), out.end(), [](char c) { return c == '\n' || c == '\r'; },
      ' ');
}

template <class Request>
Parsed<Request> refuse(std::string why) {
  return {std::nullopt, std::move(why)};
}

}  // namespace

Parsed<ExecuteRequest> parse_execute(std::string_view body) {
  using Out = ExecuteRequest;
  JsonMembers members;
  if (std::string why = scan_body(body, members); !why.empty()) return refuse<Out>(std::move(why));
  const std::string_view code = find_member(members, "code");
  if (code.empty())
    return refuse<Out>(detail("missing", quoted_field("code"), "Field required", body));
  if (!is_json_string(code))
    return refuse<Out>(
        detail("string_type", quoted_field("code"), "Input should be a valid string", code));
  Out out;
  std::string_view env;
  for (std::string why :
       {optional_text(members, "context_id", out.context_id),
        optional_text(members, "language", out.language), variables(members, env, nullptr)}) {
    if (!why.empty()) return refuse<Out>(std::move(why));
  }
  const std::string_view arguments = find_member(members, "arguments");
  out.has_arguments = !arguments.empty() && !is_json_null(arguments);
  if (out.has_arguments && arguments.front() != '{')
    return refuse<Out>(detail("dict_type", quoted_field("arguments"),
                              "Input should be a valid dictionary", arguments));
  out.line.reserve(code.size() + env.size() + arguments.size() + 64);
  out.line += R"({"op":"execute","code":)";
  out.line += code;
  if (!env.empty()) {
    out.line += R"(,"env":)";
    append_in_one_line(out.line, env);
  }
  if (out.has_arguments) {
    out.line += R"(,"arguments":)";
    append_in_one_line(out.line, arguments);
  }
  out.line += "}\n";
  return {std::move(out), {}};
}

Parsed<CreateRequest> parse_create(std::string_view body) {
  using Out = CreateRequest;
  JsonMembers members;
  if (body.empty()) body = "{}";
  if (std::string why = scan_body(body, members); !why.empty()) return refuse<Out>(std::move(why));
  Out out;
  std::string_view env;
  for (std::string why :
       {optional_text(members, "cwd", out.cwd), optional_text(members, "language", out.language),
        variables(members, env, &out.env)}) {
    if (!why.empty()) return refuse<Out>(std::move(why));
  }
  if (out.cwd.find('\0') != std::string::npos)
    return refuse<Out>(detail("value_error", quoted_field("cwd"),
                              "Value error, not a path of a directory",
                              find_member(members, "cwd")));
  return {std::move(out), {}};
}

}  // namespace atl::agent::interpreter
