#include "providers/service.h"

#include <cstdlib>

#include "api_server/fields.h"
#include "base/log.h"
#include "providers/registry.h"
#include "providers/session.h"

namespace atl::providers {
namespace {

enum Action : int { kList, kUse, kShow, kSet, kUnset, kTest, kExecute, kExecuteActive };

constexpr int kMaxRunning = 64;  // at once; each holds a connection and what the code says
constexpr std::size_t kMaxCode = 768 << 10;

constexpr api::ServiceRoute kRoutes[] = {
    {"GET", "/providers", kList},
    {"PUT", "/providers", kUse, api::Auth::team_admin},
    {"POST", "/providers/execute", kExecuteActive},
    {"GET", "/providers/{}", kShow},
    {"PUT", "/providers/{}", kSet, api::Auth::team_admin},
    {"DELETE", "/providers/{}", kUnset, api::Auth::team_admin},
    {"POST", "/providers/{}/test", kTest, api::Auth::team_admin},
    {"POST", "/providers/{}/execute", kExecute},
};

// The other side's view of our credentials is no matter of the client's own.
Error outward(const Kind& kind, Error error, const std::vector<std::string>& secrets) {
  error.message = scrubbed(std::move(error.message), secrets);
  if (error.code == Errc::unauthenticated || error.code == Errc::permission_denied)
    error.code = Errc::failed_precondition;
  if (error.code == Errc::data_loss) error.code = Errc::unavailable;
  return std::move(error).with("provider '" + std::string(kind.id) + "'");
}

json::object error_json(const Error& error) {
  return {{"code", connect_name(error.code)}, {"message", error.message}};
}

json::array names_of(std::span<const Language> languages) {
  json::array out;
  for (Language language : languages) out.emplace_back(name_of(language));
  return out;
}

json::object head_of(const Kind& kind, const Settings::Shown& shown, const std::string& active) {
  json::object out;
  out["id"] = kind.id;
  out["label"] = kind.label;
  out["description"] = kind.description;
  out["languages"] = names_of(kind.languages);
  out["configured"] = shown.configured;
  out["active"] = active == kind.id;
  out["updatedAt"] =
      shown.updated_at ? json::value(to_rfc3339(*shown.updated_at)) : json::value(nullptr);
  return out;
}

json::object summary_of(Schema schema) {
  json::array fields;
  json::array required;
  json::array secret;
  for (const Field& field : schema) {
    fields.emplace_back(field.name);
    if (field.required) required.emplace_back(field.name);
    if (field.secret) secret.emplace_back(field.name);
  }
  return {{"fields", std::move(fields)},
          {"required", std::move(required)},
          {"secret", std::move(secret)}};
}

Result<Run> decode_run(const json::object& body, const Kind& kind, std::int64_t most) {
  Run run;
  ATOLL_TRY_ASSIGN(run.code, api::required_string(body, "code"));
  if (run.code.empty()) return api::validation("'code' is empty");
  if (run.code.size() > kMaxCode) return api::validation("'code' is longer than 768 KiB");
  std::string language;
  if (api::present(body, "language") != nullptr) {
    ATOLL_TRY_ASSIGN(language, api::required_string(body, "language"));
  }
  const auto known = parse_language(language);
  if (!known) return api::validation("'language' is none that providers run: " + language);
  run.language = *known;
  if (std::find(kind.languages.begin(), kind.languages.end(), *known) == kind.languages.end())
    return unsupported(kind.id, *known, kind.languages);
  ATOLL_TRY_ASSIGN(const auto timeout, api::optional_int(body, "timeout"));
  run.timeout = std::chrono::seconds(timeout.value_or(std::min<std::int64_t>(10, most)));
  ATOLL_TRY(check_timeout(run, most));
  ATOLL_TRY_ASSIGN(const json::object* arguments, api::optional_object(body, "arguments"));
  if (arguments != nullptr) run.arguments = *arguments;
  return run;
}

struct Turn {
  explicit Turn(std::atomic<int>& count) : count_(count), number(++count) {}
  ~Turn() { --count_; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<int>& count_;

 public:
  const int number;
};

}  // namespace

Result<std::unique_ptr<ProviderService>> ProviderService::create(engine::Engine& engine,
                                                                 store::Store& store,
                                                                 const std::string& key_file) {
  ATOLL_TRY_ASSIGN(store::SecretBox box, store::SecretBox::open(key_file));
  return std::make_unique<ProviderService>(engine, store, std::move(box),
                                           [](const std::string& name) {
                                             const char* value = std::getenv(name.c_str());
                                             return std::string(value != nullptr ? value : "");
                                           });
}

ProviderService::ProviderService(engine::Engine& engine, store::Store& store, store::SecretBox box,
                                 Settings::Environment environment)
    : engine_(engine), store_(store), settings_(store, std::move(box), std::move(environment)) {}

std::span<const api::ServiceRoute> ProviderService::routes() const { return kRoutes; }

net::Task<Result<api::Reply>> ProviderService::answer(api::ServiceCall& call) {
  switch (call.route.action) {
    case kList:
      co_return list(call);
    case kUse:
      co_return use(call);
    case kShow:
      co_return show(call);
    case kSet:
      co_return set(call);
    case kUnset:
      co_return unset(call);
    case kTest: {
      auto testing = test(call);
      co_return co_await std::move(testing);
    }
    case kExecute: {
      auto executing = execute(call, call.params[0]);
      co_return co_await std::move(executing);
    }
    default: {
      ATOLL_CO_TRY_ASSIGN(std::string id, settings_.active(call.who.caller.team_id));
      if (id.empty()) {
        co_return make_error(Errc::failed_precondition,
                             "provider type not configured: no provider is active. Choose one with "
                             "`atoll provider use ID` or PUT /providers {\"active\": ID}, or name "
                             "one: POST /providers/ID/execute");
      }
      auto executing = execute(call, std::move(id));
      co_return co_await std::move(executing);
    }
  }
}

Surroundings ProviderService::surroundings(const api::ServiceCall& call) const {
  return {engine_, call.who.caller};
}

void ProviderService::audit(const api::ServiceCall& call, std::string action,
                            const std::string& subject) {
  const engine::Caller& by = call.who.caller;
  log::info("audit", {{"action", action}, {"subject", subject}, {"by", by.key_id}});
  const auto written = store_.insert_audit({.at = now(),
                                            .team_id = by.team_id,
                                            .key_id = by.key_id,
                                            .action = std::move(action),
                                            .subject = subject,
                                            .detail = {},
                                            .peer = by.peer});
  if (!written.ok())
    log::error("the audit log cannot be written", {{"error", written.error().message}});
}

Result<api::Reply> ProviderService::list(const api::ServiceCall& call) const {
  const std::string& team = call.who.caller.team_id;
  ATOLL_TRY_ASSIGN(const std::string active, settings_.active(team));
  json::array providers;
  for (const Kind& kind : all_kinds()) {
    ATOLL_TRY_ASSIGN(const Settings::Shown shown, settings_.show(team, kind));
    json::object entry = head_of(kind, shown, active);
    entry["schema"] = summary_of(kind.schema);
    providers.emplace_back(std::move(entry));
  }
  json::object out;
  out["active"] = active.empty() ? json::value(nullptr) : json::value(active);
  out["providers"] = std::move(providers);
  return api::json_reply(200, out);
}

Result<api::Reply> ProviderService::use(const api::ServiceCall& call) {
  ATOLL_TRY_ASSIGN(const json::object body, api::parse_object(call.body, api::Body::required));
  const json::value* active = body.if_contains("active");
  if (active == nullptr || !(active->is_string() || active->is_null()))
    return api::wrong_type("active", "the id of a provider, or null");
  const std::string id = active->is_string() ? std::string(active->get_string()) : std::string();
  ATOLL_TRY(settings_.set_active(call.who.caller.team_id, id));
  audit(call, "provider.use", id);
  return list(call);
}

Result<api::Reply> ProviderService::show(const api::ServiceCall& call) const {
  const std::string& team = call.who.caller.team_id;
  ATOLL_TRY_ASSIGN(const Kind* kind, find_kind(call.params[0]));
  ATOLL_TRY_ASSIGN(const std::string active, settings_.active(team));
  ATOLL_TRY_ASSIGN(const Settings::Shown shown, settings_.show(team, *kind));
  json::object out = head_of(*kind, shown, active);
  out["schema"] = describe(kind->schema);
  out["config"] = shown.config;
  out["fromEnvironment"] = shown.from_environment;
  return api::json_reply(200, out);
}

Result<api::Reply> ProviderService::set(const api::ServiceCall& call) {
  ATOLL_TRY_ASSIGN(const Kind* kind, find_kind(call.params[0]));
  ATOLL_TRY_ASSIGN(const json::object body, api::parse_object(call.body, api::Body::required));
  ATOLL_TRY_ASSIGN(const json::object* config, api::optional_object(body, "config"));
  if (config == nullptr) return api::validation("property 'config' is missing");
  ATOLL_TRY(settings_.save(call.who.caller.team_id, *kind, *config));
  audit(call, "provider.set", std::string(kind->id));
  return show(call);
}

Result<api::Reply> ProviderService::unset(const api::ServiceCall& call) {
  ATOLL_TRY_ASSIGN(const Kind* kind, find_kind(call.params[0]));
  ATOLL_TRY_ASSIGN(const bool removed, settings_.remove(call.who.caller.team_id, *kind));
  if (!removed)
    return make_error(Errc::not_found,
                      "the provider '" + std::string(kind->id) + "' has no settings");
  audit(call, "provider.unset", std::string(kind->id));
  return api::no_content();
}

net::Task<Result<api::Reply>> ProviderService::test(const api::ServiceCall& call) {
  const std::string& team = call.who.caller.team_id;
  ATOLL_CO_TRY_ASSIGN(const Kind* kind, find_kind(call.params[0]));
  ATOLL_CO_TRY_ASSIGN(const json::object body, api::parse_object(call.body, api::Body::optional));
  ATOLL_CO_TRY_ASSIGN(const json::object* config, api::optional_object(body, "config"));
  const Turn turn(running_);
  if (turn.number > kMaxRunning)
    co_return engine::transient_refusal("too many runs by providers at once");
  const auto began = std::chrono::steady_clock::now();
  auto loaded =
      config != nullptr ? settings_.preview(team, *kind, *config) : settings_.load(team, *kind);
  std::vector<Step> steps(1);
  steps[0].name = "validate";
  steps[0].took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  std::vector<std::string> secrets;
  if (!loaded.ok()) {
    steps[0].error = loaded.error();
  } else {
    secrets = loaded->secrets;
    auto testing = test_connection(*kind, surroundings(call), std::move(*loaded));
    for (Step& step : co_await std::move(testing)) steps.push_back(std::move(step));
  }
  json::object out;
  json::array shown;
  json::value failure = nullptr;
  for (Step& step : steps) {
    json::object entry{
        {"step", step.name}, {"ok", !step.error.has_value()}, {"ms", step.took.count()}};
    if (step.error) {
      step.error->message = scrubbed(std::move(step.error->message), secrets);
      entry["error"] = error_json(*step.error);
      if (failure.is_null()) {
        json::object first = error_json(*step.error);
        first["step"] = step.name;
        failure = std::move(first);
      }
    }
    shown.emplace_back(std::move(entry));
  }
  out["provider"] = kind->id;
  out["ok"] = failure.is_null();
  out["steps"] = std::move(shown);
  out["error"] = std::move(failure);
  co_return api::json_reply(200, out);
}

net::Task<Result<api::Reply>> ProviderService::execute(const api::ServiceCall& call,
                                                       std::string id) {
  ATOLL_CO_TRY_ASSIGN(const Kind* kind, find_kind(id));
  ATOLL_CO_TRY_ASSIGN(const json::object body, api::parse_object(call.body, api::Body::required));
  ATOLL_CO_TRY_ASSIGN(Loaded settings, settings_.load(call.who.caller.team_id, *kind));
  ATOLL_CO_TRY_ASSIGN(Run run, decode_run(body, *kind, number_of(settings.config, "timeout")));
  std::string template_name;
  if (api::present(body, "template") != nullptr) {
    ATOLL_CO_TRY_ASSIGN(template_name, api::required_string(body, "template"));
  }
  const Turn turn(running_);
  if (turn.number > kMaxRunning)
    co_return engine::transient_refusal("too many runs by providers at once");
  const std::vector<std::string> secrets = settings.secrets;
  const Language language = run.language;
  auto running = run_once(*kind, surroundings(call), std::move(settings), std::move(template_name),
                          std::move(run));
  auto outcome = co_await std::move(running);
  if (!outcome.ok()) co_return outward(*kind, std::move(outcome).error(), secrets);
  json::object out = to_json(std::move(*outcome));
  json::object& metadata = out["metadata"].get_object();
  metadata["provider"] = kind->id;
  metadata["language"] = name_of(language);
  co_return api::json_reply(200, out);
}

}  // namespace atl::providers
