#include "api_server/decode.h"

#include <algorithm>

#include "api_server/fields.h"

namespace atl::api {
namespace {

constexpr std::size_t kMaxIamTokens = 5;
constexpr std::size_t kMaxKeyName = 128;

Error unsupported(std::string_view feature) {
  return make_error(Errc::unimplemented, std::string(feature) + " is not supported by this server");
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
  return {};
}

// There is no issuer of tokens here: what is well-formed is accepted, without effect.
Result<void> check_iam(const json::object& body) {
  ATOLL_TRY_ASSIGN(const json::object* iam, optional_object(body, "iam"));
  if (iam == nullptr) return {};
  const json::value* tokens = present(*iam, "tokens");
  if (tokens == nullptr) return {};
  if (!tokens->is_object()) return wrong_type("iam.tokens", "an object");
  if (tokens->get_object().size() > kMaxIamTokens) {
    return make_error(Errc::invalid_argument, "iam.tokens: at most 5 tokens are allowed");
  }
  for (const auto& entry : tokens->get_object()) {
    if (entry.key().empty())
      return make_error(Errc::invalid_argument, "iam.tokens: token name must not be empty");
    const std::string name = "iam.tokens." + std::string(entry.key());
    if (!entry.value().is_object()) return wrong_type(name, "an object");
    const json::object& token = entry.value().get_object();
    const json::value* audience = present(token, "audience");
    if (audience == nullptr || (audience->is_string() && audience->get_string().empty()))
      return make_error(Errc::invalid_argument, name + ".audience: audience is required");
    if (!audience->is_string()) return wrong_type(name + ".audience", "a string");
    const json::value* type = present(token, "tokenType");
    if (type == nullptr || !type->is_string() || type->get_string() != "JWT-SVID")
      return make_error(Errc::invalid_argument, name + ".tokenType: must be 'JWT-SVID'");
  }
  return {};
}

}  // namespace

Result<engine::CreateCommand> decode_create(std::string_view text, ApiVersion version,
                                            const Features& features) {
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
  ATOLL_TRY(check_iam(body));
  ATOLL_TRY_ASSIGN(const json::object* network, optional_object(body, "network"));
  if (network != nullptr) {
    ATOLL_TRY(decode_network(*network, features, command));
  }
  ATOLL_TRY(decode_lifecycle(body, command));
  if (const json::value* mounts = present(body, "volumeMounts")) {
    if (!mounts->is_array()) return wrong_type("volumeMounts", "an array");
    if (!mounts->get_array().empty()) return unsupported("volumeMounts");
  }
  return command;
}

Result<ConnectBody> decode_connect(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::optional));
  ATOLL_TRY_ASSIGN(const auto timeout, optional_int(body, "timeout"));
  ATOLL_TRY_ASSIGN(const bool memory, bool_or(body, "memory", true));
  if (timeout && *timeout < 0) return wrong_type("timeout", "at least 0");
  ConnectBody out;
  if (timeout) out.timeout = std::chrono::seconds(*timeout);
  if (!memory) out.revive = engine::Revive::cold;
  return out;
}

Result<bool> decode_pause(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::optional));
  return bool_or(body, "memory", true);
}

Result<ResumeBody> decode_resume(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::optional));
  ResumeBody out;
  ATOLL_TRY_ASSIGN(const auto timeout, optional_int(body, "timeout"));
  if (timeout && *timeout < 0) return wrong_type("timeout", "at least 0");
  if (timeout) out.timeout = std::chrono::seconds(*timeout);
  ATOLL_TRY_ASSIGN(out.auto_pause, optional_bool(body, "autoPause"));
  return out;
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

Result<SnapshotBody> decode_snapshot(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::optional));
  SnapshotBody out;
  if (present(body, "name") != nullptr) {
    ATOLL_TRY_ASSIGN(out.name, required_string(body, "name"));
    if (out.name.empty()) return wrong_type("name", "a name, or absent");
  }
  ATOLL_TRY_ASSIGN(out.memory, bool_or(body, "memory", true));
  return out;
}

Result<ForkBody> decode_fork(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::optional));
  ForkBody out;
  ATOLL_TRY_ASSIGN(const auto timeout, optional_int(body, "timeout"));
  if (timeout && *timeout < 0) return wrong_type("timeout", "at least 0");
  if (timeout) out.timeout = std::chrono::seconds(*timeout);
  ATOLL_TRY_ASSIGN(const auto count, optional_int(body, "count"));
  if (count && (*count < 1 || *count > engine::kMaxForks))
    return wrong_type("count", "between 1 and " + std::to_string(engine::kMaxForks));
  if (count) out.count = *count;
  return out;
}

Result<std::string> decode_rollback(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::required));
  return required_string(body, "snapshotID");
}

Result<std::string> decode_key_name(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::required));
  ATOLL_TRY_ASSIGN(std::string name, required_string(body, "name"));
  const bool blank = name.find_first_not_of(" \t\r\n") == std::string::npos;
  if (blank || name.size() > kMaxKeyName) return wrong_type("name", "1 to 128 bytes long");
  return name;
}

}  // namespace atl::api
