// The provider `aliyun-codeinterpreter`: sandboxes of Alibaba Cloud's AgentRun, API 2025-09-10.
//
// Two hosts. The control plane (agentrun.REGION.aliyuncs.com) makes templates and sandboxes and is
// signed with ACS3-HMAC-SHA256; the data plane (ACCOUNT-ram.agentrun-data.REGION.aliyuncs.com) runs
// code and is signed with AGENTRUN4-HMAC-SHA256. Both as the vendor's documentation and public SDKs
// have them; nobody here has an account, so all of it is tested against those facts and not against
// the service.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <ctime>

#include "base/encoding.h"
#include "base/ids.h"
#include "base/log.h"
#include "providers/acs_signature.h"
#include "providers/kind.h"
#include "providers/program.h"
#include "providers/url.h"
#include "store/crypto.h"

namespace atl::providers {
namespace {

constexpr std::string_view kId = "aliyun-codeinterpreter";
constexpr std::string_view kVersion = "2025-09-10";
constexpr std::string_view kDefaultTemplate = "atoll-code-interpreter";
constexpr Language kLanguages[] = {Language::python, Language::javascript};
constexpr std::string_view kRegions[] = {"cn-hangzhou", "cn-beijing", "cn-shanghai", "cn-shenzhen",
                                         "cn-guangzhou"};
constexpr int kIdleSeconds = 600;  // a sandbox that nobody destroys ends by itself
constexpr std::chrono::seconds kControlTime{30};
constexpr std::chrono::seconds kReadyTime{60};
constexpr std::chrono::milliseconds kPoll{500};
// The gateway gives an answer after 30 s at the latest; on top, the way there and back.
constexpr std::chrono::seconds kGrace{5};

constexpr Field kFields[] = {
    {.name = "access_key_id",
     .label = "Access key ID",
     .description = "Of a RAM user that may use AgentRun. AGENTRUN_ACCESS_KEY_ID of the server "
                    "stands in for it",
     .required = true,
     .format = Format::name,
     .placeholder = "LTAI5t...",
     .prefix = "LTAI",
     .environment = "AGENTRUN_ACCESS_KEY_ID"},
    {.name = "access_key_secret",
     .label = "Access key secret",
     .description = "AGENTRUN_ACCESS_KEY_SECRET of the server stands in for it",
     .required = true,
     .secret = true,
     .environment = "AGENTRUN_ACCESS_KEY_SECRET"},
    {.name = "account_id",
     .label = "Account ID",
     .description = "Of the main account; part of the data plane's host name. AGENTRUN_ACCOUNT_ID "
                    "of the server stands in for it",
     .required = true,
     .placeholder = "1234567890123456",
     .environment = "AGENTRUN_ACCOUNT_ID"},
    {.name = "region",
     .label = "Region",
     .description = "Where the sandboxes run. AGENTRUN_REGION of the server stands in for it",
     .otherwise = std::string_view("cn-hangzhou"),
     .options = kRegions,
     .environment = "AGENTRUN_REGION"},
    {.name = "template_name",
     .label = "Template",
     .description = "A CodeInterpreter template of the account; without one "
                    "'atoll-code-interpreter' is used, and made if it is missing",
     .format = Format::name},
    {.name = "timeout",
     .type = FieldType::integer,
     .label = "Longest run",
     .description = "Seconds that a run may ask for; the service ends every run after 30",
     .otherwise = std::int64_t(30),
     .range = Range{1, 30}},
    {.name = "control_endpoint",
     .label = "Control endpoint",
     .description = "Instead of https://agentrun.REGION.aliyuncs.com, for VPC endpoints and tests",
     .scope = Scope::deployment,
     .format = Format::url},
    {.name = "data_endpoint",
     .label = "Data endpoint",
     .description = "Instead of https://ACCOUNT-ram.agentrun-data.REGION.aliyuncs.com",
     .scope = Scope::deployment,
     .format = Format::url},
};

// It is a part of the host name that signed requests are sent to.
Result<void> check_account(const json::object& config) {
  if (text_of(config, "account_id").find_first_not_of("0123456789") == std::string::npos) return {};
  return make_error(Errc::invalid_argument, "'account_id' may have digits only");
}

struct Now {
  std::string instant;  // "2026-03-06T12:00:00Z"
  std::string day;      // "20260306"
};

Now now_utc() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  Now out;
  out.instant.assign(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts));
  out.day.assign(text, std::strftime(text, sizeof text, "%Y%m%d", &parts));
  return out;
}

std::string string_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

// Of an answer that is not 2xx: the gateway's code says more than the status.
Error refusal(std::string_view what, const Incoming& answer) {
  std::string code;
  std::string message;
  if (auto parsed = parse_json(answer.body); parsed.ok() && parsed->is_object()) {
    const json::object& body = parsed->get_object();
    code = string_in(body, "code");
    if (code.empty()) code = string_in(body, "Code");
    message = string_in(body, "message");
    if (message.empty()) message = string_in(body, "Message");
  }
  if (message.empty()) message = excerpt(answer.body);
  const auto begins = [&](std::string_view prefix) { return code.starts_with(prefix); };
  Errc errc = Errc::failed_precondition;
  if (begins("InvalidAccessKeyId") || begins("SignatureDoesNotMatch") ||
      begins("IncompleteSignature") || answer.status == 401) {
    errc = Errc::unauthenticated;
  } else if (begins("Forbidden") || begins("NoPermission") || answer.status == 403) {
    errc = Errc::permission_denied;
  } else if (begins("Throttling") || answer.status == 429) {
    errc = Errc::resource_exhausted;
  } else if (answer.status == 404) {
    errc = Errc::not_found;
  } else if (answer.status >= 500) {
    errc = Errc::unavailable;
  }
  return make_error(errc, std::string(what) + ": AgentRun answered " +
                              std::to_string(answer.status) + (code.empty() ? "" : " " + code) +
                              ": " + excerpt(message));
}

// {"results": [{"type": "stdout", "text": ...}, ...], "contextId": ...}
Result<Outcome> read_outcome(const std::string& body, const Run& run) {
  auto parsed = parse_json(body);
  const json::object* fields = parsed.ok() ? parsed->if_object() : nullptr;
  const json::value* results = fields != nullptr ? fields->if_contains("results") : nullptr;
  if (results == nullptr || !results->is_array())
    return make_error(Errc::unavailable, "execute: AgentRun's answer has no results");
  Outcome outcome;
  std::string out;
  for (const json::value& entry : results->get_array()) {
    const json::object* item = entry.if_object();
    if (item == nullptr) continue;
    const std::string type = string_in(*item, "type");
    const std::string text = string_in(*item, "text");
    if (type == "stdout") {
      out += text;
    } else if (type == "stderr") {
      outcome.err += text;
    } else if (type == "error") {
      outcome.err += text;
      outcome.exit_code = 1;
    } else if (type == "endOfExecution") {
      const std::string status = string_in(*item, "status");
      if (status == "timeout") return run_timed_out(run);
      if (!status.empty() && status != "ok") {
        outcome.exit_code = 1;
        outcome.detail = status;
      }
    }
  }
  Extracted said = extract_result(out);
  outcome.out = std::move(said.text);
  outcome.result = std::move(said.value);
  outcome.result_type = std::move(said.type);
  if (outcome.exit_code != 0) outcome.status = "program_error";
  return outcome;
}

class Aliyun : public SandboxProvider {
 public:
  net::Task<Result<void>> initialize(json::object config) override {
    const std::string region = text_of(config, "region");
    std::string control = text_of(config, "control_endpoint");
    std::string data = text_of(config, "data_endpoint");
    if (control.empty()) control = "https://agentrun." + region + ".aliyuncs.com";
    if (data.empty()) {
      data = "https://" + text_of(config, "account_id") + "-ram.agentrun-data." + region +
             ".aliyuncs.com";
    }
    ATOLL_CO_TRY_ASSIGN(control_, parse_url(control));
    ATOLL_CO_TRY_ASSIGN(data_, parse_url(data));
    config_ = std::move(config);
    co_return Result<void>();
  }

  net::Task<Result<Instance>> create_instance(std::string template_name) override {
    if (!config_) co_return not_initialized(kId);
    if (template_name.empty()) template_name = text_of(*config_, "template_name");
    if (template_name.empty()) {
      template_name = kDefaultTemplate;
      auto ensuring = ensure_template(template_name);
      ATOLL_CO_TRY(co_await std::move(ensuring));
    }
    json::object body{{"templateName", template_name},
                      {"sandboxIdleTimeoutInSeconds", kIdleSeconds}};
    auto making = control("POST", "/sandboxes", "CreateSandbox", std::move(body));
    ATOLL_CO_TRY_ASSIGN(const json::object made, co_await std::move(making));
    Instance instance;
    instance.id = string_in(made, "sandboxId");
    instance.provider = kId;
    instance.metadata = {{"template", template_name}, {"region", text_of(*config_, "region")}};
    if (instance.id.empty())
      co_return make_error(Errc::unavailable, "CreateSandbox: the answer names no sandbox");
    auto waiting = wait_until_ready("/sandboxes/" + percent_encode(instance.id), "GetSandbox",
                                    string_in(made, "status"));
    if (auto ready = co_await std::move(waiting); !ready.ok()) {
      auto removing = destroy(instance);
      (void)co_await std::move(removing);  // the first error is the one to tell
      co_return std::move(ready).error();
    }
    co_return instance;
  }

  net::Task<Result<Outcome>> execute(Instance instance, Run run) override {
    if (!config_) co_return not_initialized(kId);
    ATOLL_CO_TRY(check_timeout(run, number_of(*config_, "timeout")));
    if (run.language == Language::bash) co_return unsupported(kId, run.language, kLanguages);
    ATOLL_CO_TRY_ASSIGN(const std::string code, with_marker(run.language, run.code, run.arguments));
    Outgoing request;
    request.method = "POST";
    request.url = data_;
    request.target = "/sandboxes/" + percent_encode(instance.id) + "/contexts/execute";
    request.headers.add("Content-Type", "application/json");
    request.body = json::serialize(json::object{
        {"code", code}, {"language", name_of(run.language)}, {"timeout", run.timeout.count()}});
    request.limit = run.timeout + kGrace;
    request.max_answer = 64 << 20;
    sign_for_data(request);
    const auto began = std::chrono::steady_clock::now();
    auto asking = send(std::move(request));
    auto answer = co_await std::move(asking);
    if (!answer.ok()) {
      if (answer.error().code == Errc::deadline_exceeded) co_return run_timed_out(run);
      co_return std::move(answer).error();
    }
    if (answer->status == 504) co_return run_timed_out(run);
    if (answer->status != 200) co_return refusal("execute", *answer);
    ATOLL_CO_TRY_ASSIGN(Outcome outcome, read_outcome(answer->body, run));
    outcome.took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - began);
    outcome.instance_id = instance.id;
    co_return outcome;
  }

  net::Task<Result<void>> destroy(Instance instance) override {
    if (!config_) co_return not_initialized(kId);
    auto removing =
        control("DELETE", "/sandboxes/" + percent_encode(instance.id), "DeleteSandbox", {});
    auto removed = co_await std::move(removing);
    if (!removed.ok() && removed.error().code != Errc::not_found)
      co_return std::move(removed).error();
    co_return Result<void>();
  }

  net::Task<Result<void>> health_check() override {
    if (!config_) co_return not_initialized(kId);
    auto asking = control("GET", "/templates", "ListTemplates", {});
    ATOLL_CO_TRY(co_await std::move(asking));
    co_return Result<void>();
  }

  std::span<const Language> supported_languages() const override { return kLanguages; }

 private:
  // The default template, made when it is not there.
  net::Task<Result<void>> ensure_template(std::string name) {
    const std::string path = "/templates/" + percent_encode(name);
    auto looking = control("GET", path, "GetTemplate", {});
    auto found = co_await std::move(looking);
    if (!found.ok() && found.error().code != Errc::not_found) co_return std::move(found).error();
    std::string status = found.ok() ? string_in(*found, "status") : std::string();
    if (!found.ok()) {
      json::object body{{"templateName", name},
                        {"templateType", "CodeInterpreter"},
                        {"cpu", 2},
                        {"memory", 4096},
                        {"sandboxIdleTimeoutInSeconds", kIdleSeconds},
                        {"networkConfiguration", json::object{{"networkMode", "PUBLIC"}}},
                        {"description", "made by Atoll"}};
      auto making = control("POST", "/templates", "CreateTemplate", std::move(body));
      ATOLL_CO_TRY_ASSIGN(const json::object made, co_await std::move(making));
      log::info("a template was made in the account of a provider",
                {{"provider", kId}, {"template", name}});
      status = string_in(made, "status");
    }
    auto waiting = wait_until_ready(path, "GetTemplate", std::move(status));
    co_return co_await std::move(waiting);
  }

  net::Task<Result<void>> wait_until_ready(std::string path, std::string action,
                                           std::string status) {
    const auto end = std::chrono::steady_clock::now() + kReadyTime;
    while (status == "CREATING") {
      if (std::chrono::steady_clock::now() > end)
        co_return make_error(Errc::deadline_exceeded, action + ": still CREATING after 60 s");
      net::asio::steady_timer timer(co_await net::asio::this_coro::executor, kPoll);
      (void)co_await timer.async_wait(net::asio::as_tuple(net::asio::use_awaitable));
      auto asking = control("GET", path, action, {});
      ATOLL_CO_TRY_ASSIGN(const json::object fields, co_await std::move(asking));
      status = string_in(fields, "status");
    }
    if (status == "CREATE_FAILED" || status == "FAILED" || status == "TERMINATED" ||
        status == "DELETING")
      co_return make_error(Errc::unavailable, action + ": the state is " + status);
    co_return Result<void>();
  }

  // A call of the control plane: `data` of its answer.
  net::Task<Result<json::object>> control(std::string method, std::string path, std::string action,
                                          json::object body) {
    Outgoing request;
    request.method = std::move(method);
    request.url = control_;
    request.target = "/" + std::string(kVersion) + path;
    request.limit = kControlTime;
    if (!body.empty()) request.body = json::serialize(body);
    sign_for_control(request, action);
    auto asking = send(std::move(request));
    ATOLL_CO_TRY_ASSIGN(const Incoming answer, co_await std::move(asking));
    if (answer.status < 200 || answer.status > 299) co_return refusal(action, answer);
    auto parsed = parse_json(answer.body);
    if (!parsed.ok() || !parsed->is_object()) co_return json::object();
    const json::value* data = parsed->get_object().if_contains("data");
    co_return data != nullptr && data->is_object() ? data->get_object() : json::object();
  }

  void sign_for_control(Outgoing& request, const std::string& action) const {
    ToSign signing = base_of(request);
    signing.payload_hash = sha256_hex(request.body);
    signing.headers["x-acs-action"] = action;
    signing.headers["x-acs-version"] = kVersion;
    signing.headers["x-acs-signature-nonce"] = random_hex(16);
    signing.headers["x-acs-date"] = now_utc().instant;
    signing.headers["x-acs-content-sha256"] = signing.payload_hash;
    if (!request.body.empty()) signing.headers["content-type"] = "application/json";
    for (const auto& [name, value] : signing.headers) request.headers.set(name, value);
    request.headers.set("Accept", "application/json");
    request.headers.set("Authorization",
                        acs3_authorization(text_of(*config_, "access_key_id"),
                                           text_of(*config_, "access_key_secret"), signing));
  }

  void sign_for_data(Outgoing& request) const {
    const Now now = now_utc();
    ToSign signing = base_of(request);
    signing.payload_hash = kUnsignedPayload;
    signing.headers["x-acs-date"] = now.instant;
    signing.headers["x-acs-content-sha256"] = kUnsignedPayload;
    for (const auto& [name, value] : signing.headers) request.headers.set(name, value);
    request.headers.set("Agentrun-Authorization",
                        agentrun4_authorization(text_of(*config_, "access_key_id"),
                                                text_of(*config_, "access_key_secret"), now.day,
                                                text_of(*config_, "region"), signing));
  }

  static ToSign base_of(const Outgoing& request) {
    ToSign signing;
    signing.method = request.method;
    signing.path = request.url.path + request.target;
    signing.headers["host"] = request.url.authority();
    return signing;
  }

  Url control_;
  Url data_;
  std::optional<json::object> config_;
};

}  // namespace

Kind aliyun_kind() {
  Kind kind;
  kind.id = kId;
  kind.label = "Alibaba Cloud code interpreter";
  kind.description =
      "AgentRun (API 2025-09-10). Follows the vendor's published API and signatures, but has not "
      "been run against the service itself: test the connection before relying on it";
  kind.schema = kFields;
  kind.languages = kLanguages;
  kind.check = check_account;
  kind.make = [](const Surroundings&) -> std::unique_ptr<SandboxProvider> {
    return std::make_unique<Aliyun>();
  };
  return kind;
}

}  // namespace atl::providers
