// The providers `atoll` (another Atoll server) and `e2b` (E2B's service): the same API, reached by
// src/client.
#include <map>

#include "client/remote_sandbox.h"
#include "providers/kind.h"
#include "providers/run_inside.h"
#include "providers/url.h"

namespace atl::providers {
namespace {

constexpr std::string_view kAtoll = "atoll";
constexpr std::string_view kE2b = "e2b";
constexpr std::string_view kE2bDomain = "e2b.app";
constexpr Language kLanguages[] = {Language::python, Language::javascript, Language::bash};
constexpr std::string_view kRegions[] = {"us", "eu"};
// A sandbox that nobody destroys ends by itself.
constexpr std::chrono::seconds kLife{60};

constexpr Field kTemplate = {
    .name = "template",
    .label = "Template",
    .description = "Template of the sandboxes; needs python3 and node for their languages",
    .format = Format::name,
    .otherwise = std::string_view("code-interpreter-v1")};
constexpr Field kInternet = {.name = "allow_internet_access",
                             .type = FieldType::boolean,
                             .label = "Internet access",
                             .description = "Whether the code may reach the internet",
                             .otherwise = true};

constexpr Field kAtollFields[] = {
    {.name = "url",
     .label = "URL",
     .description = "Where the other server's API is (its E2B_API_URL)",
     .required = true,
     .format = Format::url,
     .placeholder = "https://api.sandboxes.example.com"},
    {.name = "api_key",
     .label = "API key",
     .description = "A key of the other server (`atoll key create` there)",
     .required = true,
     .secret = true,
     .placeholder = "e2b_...",
     .prefix = "e2b_"},
    kTemplate,
    {.name = "timeout",
     .type = FieldType::integer,
     .label = "Longest run",
     .description = "Seconds that a run may ask for",
     .otherwise = std::int64_t(30),
     .range = Range{1, 300}},
    kInternet,
    {.name = "ca_file",
     .label = "CA certificate",
     .description = "A PEM file on this server that is trusted besides the machine's CAs, for a "
                    "server with a certificate of `atoll cert`",
     .scope = Scope::deployment,
     .format = Format::name},
};

constexpr Field kE2bFields[] = {
    {.name = "api_key",
     .label = "API key",
     .description = "From E2B's dashboard",
     .required = true,
     .secret = true,
     .placeholder = "e2b_...",
     .prefix = "e2b_"},
    {.name = "region",
     .label = "Region",
     .description = "E2B's public service is 'us'; for 'eu' say which 'domain' serves it",
     .otherwise = std::string_view("us"),
     .options = kRegions},
    {.name = "domain",
     .label = "Domain",
     .description =
         "Of a deployment of its own; sandboxes are hosts of it, the API is 'api.' in it "
         "(default: e2b.app)",
     .leads = true,
     .scope = Scope::deployment,
     .format = Format::name,
     .placeholder = kE2bDomain},
    {.name = "api_url",
     .label = "API URL",
     .description = "Instead of https://api.DOMAIN, as E2B_API_URL",
     .scope = Scope::deployment,
     .format = Format::url},
    kTemplate,
    {.name = "timeout",
     .type = FieldType::integer,
     .label = "Longest run",
     .description = "Seconds that a run may ask for",
     .otherwise = std::int64_t(30),
     .range = Range{5, 300}},
    kInternet,
};

Result<client::Account> atoll_account(const json::object& config) {
  ATOLL_TRY_ASSIGN(client::Account account,
                   client::account_at(text_of(config, "url"), text_of(config, "api_key")));
  if (std::string file = text_of(config, "ca_file"); !file.empty()) {
    account.api.ca_file = std::move(file);
    account.api.trust = nullptr;  // was read without that file
  }
  return account;
}

Result<client::Account> e2b_account(const json::object& config) {
  std::string domain = text_of(config, "domain");
  const std::string url = text_of(config, "api_url");
  if (url.empty() && domain.empty()) domain = kE2bDomain;
  ATOLL_TRY_ASSIGN(
      client::Account account,
      client::account_at(url.empty() ? "https://api." + domain : url, text_of(config, "api_key")));
  account.domain = domain;
  return account;
}

Result<void> check_path(const json::object& config, std::string_view field) {
  const std::string text = text_of(config, field);
  if (text.empty()) return {};
  ATOLL_TRY_ASSIGN(const Url url, parse_url(text));
  if (url.path.empty()) return {};
  return make_error(Errc::invalid_argument,
                    "'" + std::string(field) + "' must be a URL without a path");
}

Result<void> check_atoll(const json::object& config) { return check_path(config, "url"); }

// Where 'eu' is must be said: code that shall stay there must not run elsewhere by default.
Result<void> check_e2b(const json::object& config) {
  ATOLL_TRY(check_path(config, "api_url"));
  if (text_of(config, "region") != "eu" || !text_of(config, "domain").empty() ||
      !text_of(config, "api_url").empty())
    return {};
  return make_error(Errc::invalid_argument,
                    "'domain' is required for the region eu: e2b.app serves us");
}

class Remote : public SandboxProvider {
 public:
  using MakeAccount = Result<client::Account> (*)(const json::object& config);
  Remote(std::string_view id, MakeAccount make_account) : id_(id), make_account_(make_account) {}

  net::Task<Result<void>> initialize(json::object config) override {
    ATOLL_CO_TRY_ASSIGN(client::Account account, make_account_(config));
    ATOLL_CO_TRY(client::load_trust(account.api));
    account_ = std::move(account);
    config_ = std::move(config);
    co_return Result<void>();
  }

  net::Task<Result<Instance>> create_instance(std::string template_name) override {
    if (!account_) co_return not_initialized(id_);
    client::NewSandbox wanted;
    wanted.template_id =
        template_name.empty() ? text_of(config_, "template") : std::move(template_name);
    wanted.timeout = std::chrono::seconds(number_of(config_, "timeout")) + kLife;
    wanted.metadata = {{"provider", std::string(id_)}};
    if (!config_.at("allow_internet_access").as_bool()) wanted.allow_internet = false;
    auto creating = client::create_sandbox(*account_, std::move(wanted));
    ATOLL_CO_TRY_ASSIGN(const client::RemoteSandbox made, co_await std::move(creating));
    Instance instance;
    instance.id = made.id;
    instance.provider = id_;
    instance.metadata = {{"template", made.template_id}, {"server", account_->api.url()}};
    auto inside = client::inside_of(*account_, made);
    if (!inside.ok()) {
      auto removing = destroy(instance);
      (void)co_await std::move(removing);  // the first error is the one to tell
      co_return std::move(inside).error();
    }
    insides_[made.id] = std::move(*inside);
    co_return instance;
  }

  net::Task<Result<Outcome>> execute(Instance instance, Run run) override {
    if (!account_) co_return not_initialized(id_);
    ATOLL_CO_TRY(check_timeout(run, number_of(config_, "timeout")));
    const auto found = insides_.find(instance.id);
    if (found == insides_.end())
      co_return make_error(Errc::not_found, "there is no instance '" + instance.id + "'");
    auto running = run_inside(found->second, std::move(run));
    co_return co_await std::move(running);
  }

  net::Task<Result<void>> destroy(Instance instance) override {
    if (!account_) co_return not_initialized(id_);
    insides_.erase(instance.id);
    auto killing = client::kill_sandbox(*account_, instance.id);
    auto killed = co_await std::move(killing);
    if (!killed.ok() && killed.error().code != Errc::not_found) co_return std::move(killed).error();
    co_return Result<void>();
  }

  // Needs a key that is let in, other than a look at /health.
  net::Task<Result<void>> health_check() override {
    if (!account_) co_return not_initialized(id_);
    client::SandboxFilter filter;
    filter.limit = 1;
    auto listing = client::list_sandboxes(*account_, filter);
    ATOLL_CO_TRY(co_await std::move(listing));
    co_return Result<void>();
  }

  std::span<const Language> supported_languages() const override { return kLanguages; }

 private:
  const std::string_view id_;
  const MakeAccount make_account_;
  json::object config_;
  std::optional<client::Account> account_;
  std::map<std::string, client::Inside> insides_;
};

}  // namespace

Kind atoll_kind() {
  Kind kind;
  kind.id = kAtoll;
  kind.label = "Another Atoll server";
  kind.description = "Sandboxes of another Atoll server";
  kind.schema = kAtollFields;
  kind.languages = kLanguages;
  kind.check = check_atoll;
  kind.make = [](const Surroundings&) -> std::unique_ptr<SandboxProvider> {
    return std::make_unique<Remote>(kAtoll, atoll_account);
  };
  return kind;
}

Kind e2b_kind() {
  Kind kind;
  kind.id = kE2b;
  kind.label = "E2B";
  kind.description = "Sandboxes of E2B's service, or of a deployment with the same API";
  kind.schema = kE2bFields;
  kind.languages = kLanguages;
  kind.check = check_e2b;
  kind.make = [](const Surroundings&) -> std::unique_ptr<SandboxProvider> {
    return std::make_unique<Remote>(kE2b, e2b_account);
  };
  return kind;
}

}  // namespace atl::providers
