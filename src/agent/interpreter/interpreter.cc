#include "agent/interpreter/interpreter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "agent/log_ring.h"
#include "agent/wake.h"
#include "base/ids.h"

namespace atl::agent::interpreter {
namespace {

constexpr std::chrono::seconds kWarmTime{5};
constexpr std::chrono::seconds kSuspendTime{10};  // for the server, until it says `suspend`

}  // namespace

Interpreter::Interpreter(net::asio::io_context& io, AgentState& state, Reaper& reaper,
                         LogRing& logs, LauncherOptions options, std::vector<std::string> languages)
    : io_(io),
      state_(state),
      languages_(std::move(languages)),
      launcher_(io, state, reaper, logs, std::move(options)) {
  for (const char* name : {"python", "javascript"}) (void)default_of(name);
}

Interpreter::~Interpreter() {
  for (const auto& context : contexts_) context->remove();
}

void Interpreter::start() {
  launcher_.listen([this] { nursery_connected(); });
}

void Interpreter::nursery_connected() {
  const auto context = default_of("python");
  if (!context.ok()) return;
  (*context)->prepare();
  if (initialised_) (*context)->start_prepared();
}

void Interpreter::initialised() {
  initialised_ = true;
  const auto found = defaults_.find("python");
  const auto context = found == defaults_.end() ? nullptr : found->second.lock();
  if (context && context->has_kernel()) context->start_prepared();
}

net::Task<Result<void>> Interpreter::warm() {
  ATOLL_CO_TRY_ASSIGN(const auto context, default_of("python"));
  auto warming = context->warm(kWarmTime);
  co_return co_await std::move(warming);
}

void Interpreter::expect_suspend() {
  for (const auto& context : contexts_) context->outlive_clients(kSuspendTime);
}

net::Task<void> Interpreter::suspend() {
  for (const auto& context : contexts_) context->outlive_clients(Clock::duration::zero());
  auto ending = launcher_.end_nursery();
  co_await std::move(ending);
}

void Interpreter::forked(std::string_view seed) {
  for (const auto& context : contexts_) {
    if (context->has_kernel())
      context->kernel()->send_forked(derive_seed(seed, context->spec().id), state_.internal_vars());
  }
}

std::shared_ptr<Context> Interpreter::find(std::string_view id) const {
  for (const auto& context : contexts_) {
    if (context->spec().id == id) return context;
  }
  return nullptr;
}

Result<const Language*> Interpreter::language(const std::string& name) const {
  const Language* found = find_language(name);
  if (found == nullptr || std::find(languages_.begin(), languages_.end(), name) == languages_.end())
    return make_error(Errc::not_found,
                      fmt::format("there is no language {} in this sandbox, only {}",
                                  printable(name, 100), fmt::join(languages_, ", ")));
  return found;
}

Result<std::shared_ptr<Context>> Interpreter::default_of(const std::string& name) {
  if (const auto found = defaults_.find(name); found != defaults_.end()) {
    if (auto context = found->second.lock(); context && !context->removed()) return context;
  }
  ATOLL_TRY_ASSIGN(const Language* known, language(name));
  ATOLL_TRY_ASSIGN(auto context, add({random_uuid4(), known, std::string(kDefaultCwd)}));
  defaults_[name] = context;
  return context;
}

Result<std::shared_ptr<Context>> Interpreter::create(const CreateRequest& request) {
  ATOLL_TRY_ASSIGN(const Language* known, language(normalise_language(request.language)));
  return add({random_uuid4(), known, request.cwd.empty() ? std::string(kDefaultCwd) : request.cwd,
              request.env});
}

Result<std::shared_ptr<Context>> Interpreter::add(ContextSpec spec) {
  if (contexts_.size() >= kMaxContexts)
    return make_error(Errc::resource_exhausted,
                      fmt::format("there are {} contexts already", kMaxContexts));
  auto context = std::make_shared<Context>(io_, launcher_, std::move(spec));
  contexts_.push_back(context);
  return context;
}

void Interpreter::remove(const std::shared_ptr<Context>& context) {
  context->remove();
  std::erase(contexts_, context);
}

}  // namespace atl::agent::interpreter
