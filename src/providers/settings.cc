#include "providers/settings.h"

#include "providers/registry.h"

namespace atl::providers {
namespace {

// Of a stored config, which was an object when it was written.
Result<json::object> parse_config(const std::string& text) {
  ATOLL_TRY_ASSIGN(json::value value, parse_json(text));
  if (!value.is_object()) return make_error(Errc::data_loss, "a config in the store is no object");
  return std::move(value.get_object());
}

std::string place_of(const std::string& team, const Kind& kind, std::string_view field) {
  return team + "\n" + std::string(kind.id) + "\n" + std::string(field);
}

Error not_configured(const Kind& kind) {
  return make_error(Errc::failed_precondition,
                    "provider type not configured: '" + std::string(kind.id) +
                        "' has no settings. Set them with `atoll provider set " +
                        std::string(kind.id) + "` or PUT /providers/" + std::string(kind.id));
}

bool is_blank(const json::value& value) {
  return value.is_null() || (value.is_string() && value.get_string().empty());
}

bool is_mask(const json::value* value) {
  return value == nullptr || (value->is_string() && value->get_string() == kMask);
}

// Would these settings send what is stored somewhere else?
bool leads_elsewhere(const Kind& kind, const json::object& before, const json::object& after) {
  for (const Field& field : kind.schema) {
    if (field.format != Format::url && !field.leads) continue;
    const json::value* old = before.if_contains(field.name);
    const json::value* now = after.if_contains(field.name);
    const std::string_view otherwise = std::holds_alternative<std::string_view>(field.otherwise)
                                           ? std::get<std::string_view>(field.otherwise)
                                           : std::string_view();
    const auto text = [&](const json::value* value) {
      return value != nullptr && value->is_string() && !value->get_string().empty()
                 ? std::string_view(value->get_string())
                 : otherwise;
    };
    if (text(old) != text(now)) return true;
  }
  return false;
}

}  // namespace

std::string scrubbed(std::string text, const std::vector<std::string>& secrets) {
  for (const std::string& secret : secrets) {
    if (secret.size() < 4) continue;
    for (std::size_t at; (at = text.find(secret)) != std::string::npos;)
      text.replace(at, secret.size(), "***");
  }
  return text;
}

Settings::Settings(store::Store& store, store::SecretBox box, Environment environment)
    : store_(store), box_(std::move(box)), environment_(std::move(environment)) {}

Result<std::string> Settings::unseal(const std::string& team, const Kind& kind,
                                     const std::string& field, const std::string& sealed) const {
  auto secret = box_.unseal(sealed, place_of(team, kind, field));
  if (secret.ok()) return secret;
  return make_error(Errc::failed_precondition,
                    "'" + field + "' of the provider '" + std::string(kind.id) +
                        "' cannot be read: " + secret.error().message + ". Set it again");
}

// Given values, and the stored secrets where there is nothing else.
Result<Settings::Merged> Settings::merge(const std::string& team, const Kind& kind,
                                         const json::object& given) const {
  ATOLL_TRY_ASSIGN(const auto stored, store_.find_provider(team, std::string(kind.id)));
  json::object before;
  if (stored) {
    ATOLL_TRY_ASSIGN(before, parse_config(stored->config));
  }
  Merged out;
  out.config = given;
  for (const Field& field : kind.schema) {
    if (!field.secret) continue;
    const std::string name(field.name);
    if (is_mask(given.if_contains(field.name))) {
      out.config.erase(field.name);
      if (!stored || !stored->secrets.contains(name)) continue;
      if (leads_elsewhere(kind, before, given)) {
        return make_error(Errc::invalid_argument, "'" + name +
                                                      "' must be given again, because the URL "
                                                      "that it is sent to changes");
      }
      ATOLL_TRY_ASSIGN(out.config[field.name], unseal(team, kind, name, stored->secrets.at(name)));
    }
    if (const json::value* value = out.config.if_contains(field.name);
        value != nullptr && value->is_string())
      out.secrets.emplace_back(value->get_string());
  }
  return out;
}

Result<Loaded> Settings::finish(const Kind& kind, Merged merged) const {
  for (const Field& field : kind.schema) {
    if (field.environment.empty()) continue;
    const json::value* value = merged.config.if_contains(field.name);
    if (value != nullptr && !is_blank(*value)) continue;
    const std::string found = environment_(std::string(field.environment));
    if (found.empty()) continue;
    merged.config[field.name] = found;
    if (field.secret) merged.secrets.push_back(found);
  }
  ATOLL_TRY_ASSIGN(json::object config, validate(kind, merged.config));
  return Loaded{std::move(config), std::move(merged.secrets)};
}

Result<Loaded> Settings::load(const std::string& team, const Kind& kind) const {
  ATOLL_TRY_ASSIGN(const auto stored, store_.find_provider(team, std::string(kind.id)));
  if (!stored && !kind.works_unconfigured) return not_configured(kind);
  json::object config;
  if (stored) {
    ATOLL_TRY_ASSIGN(config, parse_config(stored->config));
  }
  return preview(team, kind, config);
}

Result<Loaded> Settings::preview(const std::string& team, const Kind& kind,
                                 const json::object& given) const {
  ATOLL_TRY_ASSIGN(Merged merged, merge(team, kind, given));
  return finish(kind, std::move(merged));
}

Result<void> Settings::save(const std::string& team, const Kind& kind, const json::object& given) {
  ATOLL_TRY_ASSIGN(Merged merged, merge(team, kind, given));
  ATOLL_TRY(finish(kind, merged));
  store::ProviderRecord record;
  record.team_id = team;
  record.provider = kind.id;
  record.updated_at = now();
  json::object config;
  for (const Field& field : kind.schema) {
    const json::value* value = merged.config.if_contains(field.name);
    if (value == nullptr || is_blank(*value) || field.readonly) continue;
    if (!field.secret) {
      config[field.name] = *value;
      continue;
    }
    record.secrets[std::string(field.name)] =
        box_.seal(value->get_string(), place_of(team, kind, field.name));
  }
  record.config = json::serialize(config);
  return store_.put_provider(record);
}

Result<bool> Settings::remove(const std::string& team, const Kind& kind) {
  return store_.delete_provider(team, std::string(kind.id));
}

Result<Settings::Shown> Settings::show(const std::string& team, const Kind& kind) const {
  Shown out;
  ATOLL_TRY_ASSIGN(const auto stored, store_.find_provider(team, std::string(kind.id)));
  out.configured = stored || kind.works_unconfigured;
  if (stored) {
    ATOLL_TRY_ASSIGN(out.config, parse_config(stored->config));
    for (const auto& [field, sealed] : stored->secrets) out.config[field] = kMask;
    out.updated_at = stored->updated_at;
  }
  for (const Field& field : kind.schema) {
    if (field.environment.empty() || out.config.contains(field.name)) continue;
    if (!environment_(std::string(field.environment)).empty())
      out.from_environment.emplace_back(field.name);
  }
  return out;
}

Result<std::string> Settings::active(const std::string& team) const {
  return store_.active_provider(team);
}

Result<void> Settings::set_active(const std::string& team, const std::string& id) {
  if (!id.empty()) {
    ATOLL_TRY_ASSIGN(const Kind* kind, find_kind(id));
    ATOLL_TRY_ASSIGN(const auto stored, store_.find_provider(team, id));
    if (!stored && !kind->works_unconfigured) return not_configured(*kind);
  }
  return store_.set_active_provider(team, id);
}

}  // namespace atl::providers
