#include "session/options.h"

#include <algorithm>

#include "api_server/decode.h"
#include "api_server/fields.h"
#include "base/encoding.h"
#include "store/workspace_name.h"

namespace atl::session {
namespace {

using std::chrono::seconds;

constexpr seconds kMaxTimeout = std::chrono::hours(24);
constexpr seconds kMaxTtl = std::chrono::hours(30 * 24);
constexpr std::string_view kReserved = "atoll.";

json::object to_object(const StringMap& map) {
  json::object out;
  for (const auto& [name, value] : map) out[name] = value;
  return out;
}

Result<std::optional<seconds>> duration(const json::object& body, std::string_view field,
                                        seconds least, seconds most) {
  ATOLL_TRY_ASSIGN(const auto number, api::optional_int(body, field));
  if (!number) return std::optional<seconds>();
  if (*number < least.count() || *number > most.count()) {
    return api::wrong_type(field, "between " + std::to_string(least.count()) + " and " +
                                      std::to_string(most.count()) + " seconds");
  }
  return std::optional<seconds>(*number);
}

// Empty: none.
Result<void> check_workspace(const std::string& name) {
  if (name.empty()) return {};
  return store::check_workspace_name(name);
}

// Of an update, the fields that are named.
Result<Update> only(Update update, const json::value& names) {
  if (!names.is_array()) return api::wrong_type("update", "an array");
  const auto named = [&names](std::string_view name) {
    return std::any_of(
        names.get_array().begin(), names.get_array().end(),
        [&](const json::value& each) { return each.is_string() && each.get_string() == name; });
  };
  if (!named("timeout")) update.timeout.reset();
  if (!named("pauseAfter")) update.pause_after.reset();
  if (!named("ttl")) update.ttl.reset();
  if (!named("metadata")) update.metadata.reset();
  if (!named("workspace")) update.workspace.reset();
  return update;
}

// A day is the longest run of a sandbox, and a mapping outlives two of them.
seconds default_ttl(seconds timeout) { return std::max<seconds>(Options{}.ttl, 2 * timeout); }

}  // namespace

Result<void> check_key(std::string_view key) {
  const bool printable = std::none_of(key.begin(), key.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (!key.empty() && key.size() <= kMaxKey && printable && is_valid_utf8(key)) return {};
  return make_error(Errc::invalid_argument,
                    "the key of a session is 1 to 256 bytes of text without control characters");
}

Result<Options> decode_options(std::string_view text) {
  ATOLL_TRY_ASSIGN(const json::object body, api::parse_object(text, api::Body::optional));
  Options out;
  if (api::present(body, "templateID") != nullptr) {
    ATOLL_TRY_ASSIGN(out.template_reference, api::required_string(body, "templateID"));
  }
  ATOLL_TRY_ASSIGN(out.update.timeout, duration(body, "timeout", seconds(1), kMaxTimeout));
  ATOLL_TRY_ASSIGN(out.update.pause_after, duration(body, "pauseAfter", seconds(0), kMaxTtl));
  ATOLL_TRY_ASSIGN(out.update.ttl, duration(body, "ttl", seconds(1), kMaxTtl));
  if (api::present(body, "metadata") != nullptr) {
    ATOLL_TRY_ASSIGN(out.update.metadata, api::string_map(body, "metadata"));
    for (const auto& [name, value] : *out.update.metadata) {
      if (name.starts_with(kReserved))
        return api::validation("names in 'metadata' that begin with 'atoll.' are the server's");
    }
  }
  if (api::present(body, "workspace") != nullptr) {
    ATOLL_TRY_ASSIGN(out.update.workspace, api::required_string(body, "workspace"));
  }
  ATOLL_TRY_ASSIGN(out.envs, api::string_map(body, "envVars"));
  ATOLL_TRY_ASSIGN(out.allow_internet, api::optional_bool(body, "allow_internet_access"));
  ATOLL_TRY_ASSIGN(const json::object* network, api::optional_object(body, "network"));
  if (network != nullptr) out.network = json::serialize(*network);
  Options whole = updated(out, out.update);
  if (!out.update.ttl) whole.ttl = default_ttl(whole.timeout);
  if (const json::value* named = api::present(body, "update")) {
    ATOLL_TRY_ASSIGN(whole.update, only(std::move(whole.update), *named));
  }
  // What a create would refuse is refused before anything is looked up.
  ATOLL_TRY(create_command({}, "", "", whole));
  return whole;
}

json::object encode_options(const Options& options) {
  json::object out;
  out["templateID"] = options.template_reference;
  out["timeout"] = options.timeout.count();
  out["pauseAfter"] = options.pause_after.count();
  out["ttl"] = options.ttl.count();
  out["metadata"] = to_object(options.metadata);
  if (!options.workspace.empty()) out["workspace"] = options.workspace;
  if (!options.envs.empty()) out["envVars"] = to_object(options.envs);
  if (options.allow_internet) out["allow_internet_access"] = *options.allow_internet;
  if (options.network != "{}") {
    if (auto network = parse_json(options.network); network.ok())
      out["network"] = std::move(*network);
  }
  return out;
}

json::object encode_request(const Options& options) {
  json::object out = encode_options(options);
  const Update& update = options.update;
  json::array named;
  if (update.timeout) named.emplace_back("timeout");
  if (update.pause_after) named.emplace_back("pauseAfter");
  if (update.ttl) named.emplace_back("ttl");
  if (update.metadata) named.emplace_back("metadata");
  if (update.workspace) {
    named.emplace_back("workspace");
    out["workspace"] = *update.workspace;
  }
  out["update"] = std::move(named);
  return out;
}

Options updated(Options options, const Update& update) {
  if (update.timeout) options.timeout = *update.timeout;
  if (update.pause_after) options.pause_after = *update.pause_after;
  if (update.ttl) options.ttl = *update.ttl;
  if (update.metadata) options.metadata = *update.metadata;
  if (update.workspace) options.workspace = *update.workspace;
  return options;
}

Result<engine::CreateCommand> create_command(const engine::Caller& caller, const std::string& key,
                                             const std::string& claim, const Options& options) {
  ATOLL_TRY(check_workspace(options.workspace));
  ATOLL_TRY(check_workspace(options.update.workspace.value_or("")));
  json::object body = encode_options(options);
  json::object& metadata = body["metadata"].get_object();
  metadata[kKeyMetadata] = key;
  metadata[kClaimMetadata] = claim;
  body["autoPause"] = true;
  body["autoResume"] = json::object{{"enabled", true}};
  ATOLL_TRY_ASSIGN(engine::CreateCommand command,
                   api::decode_create(json::serialize(body), api::ApiVersion::v2));
  command.caller = caller;
  return command;
}

}  // namespace atl::session
