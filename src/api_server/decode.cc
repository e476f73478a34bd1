#include "api_server/decode.h"

#include <arpa/inet.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/json.h"

namespace atl::api {
namespace {

constexpr std::size_t kMaxMapEntries = 1'000;
constexpr std::int64_t kDefaultConnect = 300;

Error validation(std::string_view what) {
  return make_error(Errc::invalid_argument, "validation error: " + std::string(what));
}

Error wrong_type(std::string_view field, std::string_view expected) {
  return validation("'" + std::string(field) + "' must be " + std::string(expected));
}

Error unsupported(std::string_view feature) {
  return make_error(Errc::unimplemented, std::string(feature) + " is not supported by this server");
}

enum class Body { required, optional };

// The document as an object; a missing optional body is an empty one.
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

// A 32-bit integer; JSON has one kind of number, so 300.0 is one too.
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

Result<std::vector<std::string>> string_array(const json::object& object, std::string_view field) {
  std::vector<std::string> out;
  const json::value* value = present(object, field);
  if (value == nullptr) return out;
  if (!value->is_array() || value->get_array().size() > kMaxMapEntries)
    return wrong_type(field, "an array of strings");
  for (const json::value& item : value->get_array()) {
    if (!item.is_string()) return wrong_type(field, "an array of strings");
    out.emplace_back(item.get_string());
  }
  return out;
}

bool is_empty(const json::value& value) {
  if (value.is_object()) return value.get_object().empty();
  if (value.is_array()) return value.get_array().empty();
  return value.is_null();
}

// What execve cannot carry must be refused here, not dropped there.
Result<void> check_envs(const store::StringMap& envs) {
  for (const auto& [name, value] : envs) {
    if (name.empty() || name.find('=') != std::string::npos ||
        name.find('\0') != std::string::npos || value.find('\0') != std::string::npos) {
      return validation("'envVars' has a name or value that no process can have");
    }
  }
  return {};
}

bool is_ipv4_or_cidr(const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::string address = text.substr(0, slash);
  in_addr parsed{};
  if (inet_pton(AF_INET, address.c_str(), &parsed) != 1) return false;
  if (slash == std::string::npos) return parsed.s_addr != 0;
  const std::string bits = text.substr(slash + 1);
  if (bits.empty() || bits.size() > 2 || bits.find_first_not_of("0123456789") != std::string::npos)
    return false;
  const int length = std::stoi(bits);
  return length <= 32 && (parsed.s_addr != 0 || length == 0);
}

// ASCII host with an optional port; "${PORT}" may stand anywhere in it.
bool is_mask(std::string_view mask) {
  return !mask.empty() && mask.size() <= 255 && std::all_of(mask.begin(), mask.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == ':' || c == '$' || c == '{' || c == '}' || c == '_' || c == '[' ||
           c == ']';
  });
}

Result<void> decode_network(const json::object& network, engine::CreateCommand& command) {
  ATOLL_TRY_ASSIGN(command.allow_public_traffic, bool_or(network, "allowPublicTraffic", true));
  ATOLL_TRY_ASSIGN(const auto allow, string_array(network, "allowOut"));
  ATOLL_TRY_ASSIGN(const auto deny, string_array(network, "denyOut"));
  for (const std::string& entry : deny) {
    if (!is_ipv4_or_cidr(entry))
      return make_error(Errc::invalid_argument, "invalid denied CIDR " + entry);
  }
  const bool names = std::any_of(allow.begin(), allow.end(),
                                 [](const std::string& e) { return !is_ipv4_or_cidr(e); });
  if (names && std::find(deny.begin(), deny.end(), "0.0.0.0/0") == deny.end()) {
    return make_error(Errc::invalid_argument,
                      "When specifying allowed domains in allow out, you must include "
                      "'ALL_TRAFFIC' in deny out to block "
                      "all other traffic.");
  }
  if (const json::value* mask = present(network, "maskRequestHost")) {
    if (!mask->is_string() || !is_mask(std::string_view(mask->get_string()))) {
      return wrong_type("network.maskRequestHost", "a host name with an optional port");
    }
    command.mask_request_host = mask->get_string();
  }
  if (!command.allow_public_traffic && !command.secure) {
    return make_error(Errc::invalid_argument,
                      "You cannot create a sandbox without public access unless you enable secure "
                      "envd access via "
                      "'secure' flag.");
  }
  for (const std::string_view field : {"rules", "egressProxy", "httpsPorts"}) {
    const json::value* value = present(network, field);
    if (value != nullptr && !is_empty(*value)) return unsupported("network." + std::string(field));
  }
  command.network = json::serialize(network);
  return {};
}

// The rules between the flags first, then what we cannot do.
Result<void> decode_lifecycle(const json::object& body, engine::CreateCommand& command) {
  ATOLL_TRY_ASSIGN(command.auto_pause, bool_or(body, "autoPause", false));
  ATOLL_TRY_ASSIGN(command.auto_pause_memory, bool_or(body, "autoPauseMemory", true));
  ATOLL_TRY_ASSIGN(const json::object* resume, optional_object(body, "autoResume"));
  if (resume != nullptr) {
    if (present(*resume, "enabled") == nullptr)
      return validation("property 'autoResume.enabled' is missing");
    ATOLL_TRY_ASSIGN(command.auto_resume, bool_or(*resume, "enabled", false));
  }
  if (!command.auto_pause_memory && !command.auto_pause) {
    return make_error(Errc::invalid_argument, "'autoPauseMemory: false' needs 'autoPause: true'");
  }
  if (!command.auto_pause_memory && command.auto_resume) {
    return make_error(Errc::invalid_argument,
                      "'autoPauseMemory: false' cannot be combined with 'autoResume'");
  }
  if (command.auto_pause) return unsupported("autoPause");
  if (command.auto_resume) return unsupported("autoResume");
  return {};
}

}  // namespace

Result<engine::CreateCommand> decode_create(std::string_view text, ApiVersion version) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::required));
  engine::CreateCommand command;
  ATOLL_TRY_ASSIGN(command.template_reference, required_string(body, "templateID"));
  ATOLL_TRY_ASSIGN(const auto timeout, optional_int(body, "timeout"));
  if (timeout && *timeout < 0) return wrong_type("timeout", "at least 0");
  command.timeout = std::chrono::seconds(timeout.value_or(version == ApiVersion::v1 ? 15 : 300));
  ATOLL_TRY_ASSIGN(command.metadata, string_map(body, "metadata"));
  ATOLL_TRY_ASSIGN(command.envs, string_map(body, "envVars"));
  ATOLL_TRY(check_envs(command.envs));
  ATOLL_TRY_ASSIGN(const bool secure, bool_or(body, "secure", false));
  command.secure = version == ApiVersion::v2 || secure;
  ATOLL_TRY_ASSIGN(command.allow_internet, optional_bool(body, "allow_internet_access"));
  ATOLL_TRY(optional_object(body, "mcp"));  // the client starts the gateway itself
  ATOLL_TRY(optional_object(body, "iam"));  // no token issuer here: accepted, without effect
  ATOLL_TRY_ASSIGN(const json::object* network, optional_object(body, "network"));
  if (network != nullptr) {
    ATOLL_TRY(decode_network(*network, command));
  }
  ATOLL_TRY(decode_lifecycle(body, command));
  if (const json::value* mounts = present(body, "volumeMounts")) {
    if (!mounts->is_array()) return wrong_type("volumeMounts", "an array");
    if (!mounts->get_array().empty()) return unsupported("volumeMounts");
  }
  return command;
}

Result<std::chrono::seconds> decode_connect(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::optional));
  ATOLL_TRY_ASSIGN(const auto timeout, optional_int(body, "timeout"));
  ATOLL_TRY(optional_bool(body, "memory"));  // of no meaning for a sandbox that runs
  if (timeout && *timeout < 0) return wrong_type("timeout", "at least 0");
  return std::chrono::seconds(timeout.value_or(kDefaultConnect));
}

Result<std::chrono::seconds> decode_timeout(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::required));
  ATOLL_TRY_ASSIGN(const auto timeout, optional_int(body, "timeout"));
  if (!timeout) return validation("property 'timeout' is missing");
  return std::chrono::seconds(std::max<std::int64_t>(*timeout, 0));
}

Result<std::chrono::seconds> decode_refresh(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::optional));
  ATOLL_TRY_ASSIGN(const auto duration, optional_int(body, "duration"));
  if (duration && (*duration < 0 || *duration > 3600))
    return wrong_type("duration", "between 0 and 3600");
  return std::chrono::seconds(duration.value_or(0));
}

}  // namespace atl::api
