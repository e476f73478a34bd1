#include "executor/request.h"

#include <algorithm>

#include "base/encoding.h"
#include "base/json.h"
#include "executor/members.h"

namespace atl::executor {
namespace {

bool is_strict_base64(std::string_view text) {
  if (text.size() % 4 != 0) return false;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  return std::all_of(text.begin(), text.end() - std::ptrdiff_t(padding), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/';
  });
}

Refused refused(std::string field, std::string type, std::string message) {
  return {std::move(field), std::move(type), std::move(message)};
}

}  // namespace

std::string_view to_string(Language language) {
  return language == Language::python ? "python" : "nodejs";
}

Result<std::string> decode_code(std::string_view code_b64) {
  auto code = is_strict_base64(code_b64) ? base64_decode(code_b64) : std::nullopt;
  if (!code) return make_error(Errc::invalid_argument, "code_b64 is not valid base64");
  if (!is_valid_utf8(*code))
    return make_error(Errc::invalid_argument, "code_b64 does not contain UTF-8");
  return std::move(*code);
}

std::variant<RunRequest, Refused> decode_run(std::string body) {
  auto members = read_members(body, {"code_b64", "language", "arguments"});
  if (!members.ok()) return refused("", "json_invalid", members.error().message);
  if (!members->is_object)
    return refused("", "model_attributes_type", "the body must be a JSON object");

  const Member* code = members->find("code_b64");
  if (code == nullptr) return refused("code_b64", "missing", "Field required");
  if (code->kind != json::kind::string)
    return refused("code_b64", "string_type", "Input should be a valid string");
  if (auto decoded = decode_code(code->text); !decoded.ok())
    return refused("code_b64", "value_error", "Value error, " + decoded.error().message);

  RunRequest out;
  if (const Member* language = members->find("language")) {
    const bool named = language->kind == json::kind::string;
    if (named && language->text == "nodejs") {
      out.language = Language::nodejs;
    } else if (!named || language->text != "python") {
      return refused("language", "enum", "Input should be 'python' or 'nodejs'");
    }
  }
  const Member* arguments = members->find("arguments");
  if (arguments != nullptr && arguments->kind != json::kind::object &&
      arguments->kind != json::kind::null)
    return refused("arguments", "dict_type", "Input should be a valid dictionary");
  out.body = std::move(body);
  return out;
}

std::string encode_refused(const Refused& refused) {
  json::array where = {"body"};
  if (!refused.field.empty()) where.push_back(json::value(refused.field));
  json::object entry;
  entry["type"] = refused.type;
  entry["loc"] = std::move(where);
  entry["msg"] = refused.message;
  json::object out;
  out["code"] = 422;
  out["message"] = refused.field.empty() ? refused.message : refused.field + ": " + refused.message;
  out["detail"] = json::array{std::move(entry)};
  return json::serialize(out);
}

}  // namespace atl::executor
