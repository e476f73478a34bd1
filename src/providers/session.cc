#include "providers/session.h"

#include "base/ids.h"
#include "base/log.h"

namespace atl::providers {
namespace {

void note_leftover(const Kind& kind, const Instance& instance, const Error& error) {
  log::warn("an instance of a provider could not be destroyed",
            {{"provider", kind.id}, {"instance", instance.id}, {"error", error.message}});
}

// Times a step and keeps what came of it.
template <class T>
net::Task<Result<T>> timed(std::vector<Step>& steps, std::string name, net::Task<Result<T>> call) {
  const auto began = std::chrono::steady_clock::now();
  auto result = co_await std::move(call);
  Step step;
  step.name = std::move(name);
  step.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  if (!result.ok()) step.error = result.error();
  steps.push_back(std::move(step));
  co_return result;
}

net::Task<Result<void>> print_something(SandboxProvider& provider, Instance instance,
                                        std::chrono::seconds timeout) {
  const std::string word = random_hex(8);
  Run run;
  run.code = "print('" + word + "')\n";
  run.timeout = timeout;
  auto executing = provider.execute(std::move(instance), std::move(run));
  ATOLL_CO_TRY_ASSIGN(const Outcome outcome, co_await std::move(executing));
  if (outcome.exit_code != 0) {
    co_return make_error(Errc::unavailable, "a print ended with " +
                                                std::to_string(outcome.exit_code) + ": " +
                                                outcome.err.substr(0, 500));
  }
  if (outcome.out.find(word) == std::string::npos)
    co_return make_error(Errc::unavailable, "what was printed did not come back");
  co_return Result<void>();
}

}  // namespace

net::Task<Result<Outcome>> run_once(const Kind& kind, Surroundings surroundings, Loaded settings,
                                    std::string template_name, Run run) {
  const std::unique_ptr<SandboxProvider> provider = kind.make(surroundings);
  auto initializing = provider->initialize(settings.config);
  ATOLL_CO_TRY(co_await std::move(initializing));
  auto creating = provider->create_instance(std::move(template_name));
  ATOLL_CO_TRY_ASSIGN(const Instance instance, co_await std::move(creating));
  auto executing = provider->execute(instance, std::move(run));
  auto outcome = co_await std::move(executing);
  auto destroying = provider->destroy(instance);
  if (auto gone = co_await std::move(destroying); !gone.ok()) {
    Error error = std::move(gone).error();
    error.message = scrubbed(std::move(error.message), settings.secrets);
    note_leftover(kind, instance, error);
  }
  co_return outcome;
}

net::Task<std::vector<Step>> test_connection(const Kind& kind, Surroundings surroundings,
                                             Loaded settings) {
  std::vector<Step> steps;
  const std::unique_ptr<SandboxProvider> provider = kind.make(surroundings);
  const auto limit = std::chrono::seconds(number_of(settings.config, "timeout"));
  auto initializing = timed(steps, "initialize", provider->initialize(settings.config));
  if (!(co_await std::move(initializing)).ok()) co_return steps;
  auto checking = timed(steps, "health_check", provider->health_check());
  if (!(co_await std::move(checking)).ok()) co_return steps;
  auto creating = timed(steps, "create", provider->create_instance(""));
  auto instance = co_await std::move(creating);
  if (!instance.ok()) co_return steps;
  auto executing = timed(steps, "execute", print_something(*provider, *instance, limit));
  (void)co_await std::move(executing);  // kept with its step
  auto destroying = timed(steps, "destroy", provider->destroy(*instance));
  (void)co_await std::move(destroying);
  co_return steps;
}

}  // namespace atl::providers
