// The provider `local`: sandboxes of this server's own engine, which belong to the caller's team.
#include "providers/kind.h"
#include "providers/run_inside.h"
#include "proxy/inside.h"

namespace atl::providers {
namespace {

constexpr std::string_view kId = "local";
constexpr Language kLanguages[] = {Language::python, Language::javascript, Language::bash};
// A sandbox that nobody destroys (the server went away in between) ends by itself.
constexpr std::chrono::seconds kLife{60};

constexpr Field kFields[] = {
    {.name = "template",
     .label = "Template",
     .description = "Template of the sandboxes; needs python3 and node for their languages",
     .format = Format::name,
     .otherwise = std::string_view("code-interpreter-v1")},
    {.name = "timeout",
     .type = FieldType::integer,
     .label = "Longest run",
     .description = "Seconds that a run may ask for",
     .otherwise = std::int64_t(30),
     .range = Range{1, 300}},
    {.name = "allow_internet_access",
     .type = FieldType::boolean,
     .label = "Internet access",
     .description = "Whether the code may reach the internet",
     .otherwise = true},
};

class Local : public SandboxProvider {
 public:
  Local(engine::Engine& engine, engine::Caller caller)
      : engine_(engine), caller_(std::move(caller)) {}

  net::Task<Result<void>> initialize(json::object config) override {
    config_ = std::move(config);
    co_return Result<void>();
  }

  net::Task<Result<Instance>> create_instance(std::string template_name) override {
    if (!config_) co_return not_initialized(kId);
    engine::CreateCommand command;
    command.caller = caller_;
    command.template_reference =
        template_name.empty() ? text_of(*config_, "template") : std::move(template_name);
    command.timeout = std::chrono::seconds(number_of(*config_, "timeout")) + kLife;
    command.secure = true;
    command.metadata = {{"provider", std::string(kId)}};
    if (!config_->at("allow_internet_access").as_bool()) command.allow_internet = false;
    auto creating = engine_.create(std::move(command));
    ATOLL_CO_TRY_ASSIGN(const engine::SandboxInfo made, co_await std::move(creating));
    Instance instance;
    instance.id = made.record.id.str();
    instance.provider = kId;
    instance.metadata = {{"template", made.record.template_id}};
    co_return instance;
  }

  net::Task<Result<Outcome>> execute(Instance instance, Run run) override {
    if (!config_) co_return not_initialized(kId);
    ATOLL_CO_TRY(check_timeout(run, number_of(*config_, "timeout")));
    const auto id = SandboxId::parse(instance.id);
    if (!id) co_return make_error(Errc::not_found, "there is no instance '" + instance.id + "'");
    ATOLL_CO_TRY_ASSIGN(const engine::SandboxInfo info, engine_.info(caller_, *id));
    auto running =
        run_inside(proxy::inside_of(engine_, *id, info.access_token.value_or("")), std::move(run));
    co_return co_await std::move(running);
  }

  net::Task<Result<void>> destroy(Instance instance) override {
    if (!config_) co_return not_initialized(kId);
    const auto id = SandboxId::parse(instance.id);
    if (!id) co_return Result<void>();
    auto killing = engine_.kill(caller_, *id);
    auto killed = co_await std::move(killing);
    if (!killed.ok() && killed.error().code != Errc::not_found) co_return std::move(killed).error();
    co_return Result<void>();
  }

  net::Task<Result<void>> health_check() override {
    if (!config_) co_return not_initialized(kId);
    if (!engine_.accepting())
      co_return make_error(Errc::unavailable, "the server makes no sandboxes now");
    co_return Result<void>();
  }

  std::span<const Language> supported_languages() const override { return kLanguages; }

 private:
  engine::Engine& engine_;
  const engine::Caller caller_;
  std::optional<json::object> config_;
};

}  // namespace

Kind local_kind() {
  Kind kind;
  kind.id = kId;
  kind.label = "This server";
  kind.description = "Sandboxes of this Atoll server";
  kind.schema = kFields;
  kind.languages = kLanguages;
  kind.make = [](const Surroundings& given) -> std::unique_ptr<SandboxProvider> {
    return std::make_unique<Local>(given.engine, given.caller);
  };
  kind.works_unconfigured = true;
  return kind;
}

}  // namespace atl::providers
