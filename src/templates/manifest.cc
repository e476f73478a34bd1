#include "templates/manifest.h"

#include <algorithm>

#include "base/json.h"
#include "templates/reference.h"

namespace atl::templates {
namespace {

Error wrong(std::string_view field, std::string_view expected) {
  return make_error(Errc::invalid_argument,
                    std::string(field) + " must be " + std::string(expected));
}

Result<std::string> string_field(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_string() || value->get_string().empty())
    return wrong(name, "a non-empty string");
  return std::string(value->get_string());
}

Result<std::uint32_t> number_field(const json::object& object, std::string_view name,
                                   std::int64_t least, std::int64_t most) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_int64() || value->get_int64() < least ||
      value->get_int64() > most) {
    return wrong(name, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return std::uint32_t(value->get_int64());
}

constexpr std::size_t kMaxCommand = 32 * 1024;

// Empty if absent.
Result<std::string> optional_string(const json::object& object, std::string_view name,
                                    std::size_t longest) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return std::string();
  if (!value->is_string() || value->get_string().empty() || value->get_string().size() > longest ||
      value->get_string().find('\0') != json::string::npos)
    return wrong(name, "a non-empty string of at most " + std::to_string(longest) + " bytes");
  return std::string(value->get_string());
}

// False if absent.
Result<bool> optional_bool(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return false;
  if (!value->is_bool()) return wrong(name, "true or false");
  return value->get_bool();
}

bool is_template_id(std::string_view id) {
  return id.size() == 20 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}

}  // namespace

Result<Template> parse_manifest(std::string_view text, std::string dir) {
  ATOLL_TRY_ASSIGN(json::value document, parse_json(text));
  if (!document.is_object()) return wrong("the manifest", "a JSON object");
  const json::object& object = document.get_object();
  ATOLL_TRY(number_field(object, "version", 1, 1));
  Template t;
  t.dir = std::move(dir);
  ATOLL_TRY_ASSIGN(t.id, string_field(object, "templateID"));
  if (!is_template_id(t.id)) return wrong("templateID", "20 lower-case alphanumerics");
  const json::value* names = object.if_contains("names");
  if (names == nullptr || !names->is_array()) return wrong("names", "an array of names");
  for (const json::value& name : names->get_array()) {
    if (!name.is_string() || !is_alias(std::string_view(name.get_string())))
      return wrong("names", "an array of names");
    t.names.emplace_back(name.get_string());
  }
  ATOLL_TRY_ASSIGN(t.build_id, string_field(object, "buildID"));
  ATOLL_TRY_ASSIGN(t.cpu_count, number_field(object, "cpuCount", 1, 1024));
  ATOLL_TRY_ASSIGN(t.memory_mb, number_field(object, "memoryMB", 128, 1 << 22));
  ATOLL_TRY_ASSIGN(t.disk_mb, number_field(object, "diskMB", 0, 1 << 28));
  ATOLL_TRY_ASSIGN(t.envd_version, string_field(object, "envdVersion"));
  ATOLL_TRY_ASSIGN(const std::string created, string_field(object, "createdAt"));
  const auto at = parse_rfc3339(created);
  if (!at) return wrong("createdAt", "an RFC 3339 time");
  t.created_at = *at;
  ATOLL_TRY_ASSIGN(t.default_user, string_field(object, "defaultUser"));
  ATOLL_TRY_ASSIGN(t.start_command, optional_string(object, "startCommand", kMaxCommand));
  ATOLL_TRY_ASSIGN(t.rootfs, optional_string(object, "rootfs", 128));
  if (!t.rootfs.empty() && !is_alias(t.rootfs)) return wrong("rootfs", "the name of a template");
  ATOLL_TRY_ASSIGN(t.zygote, optional_bool(object, "zygote"));
  return t;
}

}  // namespace atl::templates
