#include "agent/interpreter/context.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "agent/log_ring.h"
#include "base/log.h"

namespace atl::agent::interpreter {
namespace {

namespace asio = net::asio;
constexpr std::chrono::seconds kReadyTime{60};
constexpr std::chrono::seconds kInterruptTime{5};
constexpr std::string_view kNotStopped =
    "The previous run did not stop when it was interrupted: its kernel was ended and replaced, and "
    "the state of this context is lost.\n";

}  // namespace

Context::Context(asio::io_context& io, Launcher& launcher, ContextSpec spec)
    : io_(io), launcher_(launcher), spec_(std::move(spec)) {}

// ---- kernels ----

void Context::prepare() { bring(Bring::launched); }

void Context::start_prepared() {
  start_wanted_ = true;
  if (has_kernel() && !kernel_->start_sent()) bring(Bring::ready);
}

void Context::bring(Bring how) {
  if (removed_ || bringing_) return;
  if (has_kernel() && (how == Bring::launched || kernel_->ready())) return;
  bringing_ = true;
  brought_ = {};
  asio::co_spawn(io_, bring_up(shared_from_this(), how, generation_), asio::detached);
}

net::Task<void> Context::bring_up(std::shared_ptr<Context> self, Bring how, unsigned generation) {
  std::shared_ptr<Kernel> kernel = self->has_kernel() ? self->kernel_ : nullptr;
  Result<void> done;
  if (!kernel) {
    auto launching = self->launcher_.launch(*self->spec_.language, self->spec_.id);
    auto launched = co_await std::move(launching);
    if (launched.ok()) {
      kernel = *std::move(launched);
    } else {
      done = std::move(launched).error();
    }
  }
  const auto outdated = [&] { return self->removed_ || self->generation_ != generation; };
  if (kernel && !outdated()) {
    self->kernel_ = kernel;
    if (how == Bring::ready) {
      auto starting = self->make_ready(kernel);
      done = co_await std::move(starting);
    }
  }
  if (outdated()) {
    if (kernel) kernel->kill();
    co_return;  // whoever made it so has begun anew
  }
  if (!done.ok()) {
    log::warn("no kernel",
              {{"language", self->spec_.language->name}, {"error", done.error().message}});
    self->drop_kernel();
  }
  self->bringing_ = false;
  self->brought_ = std::move(done);
  if (self->start_wanted_ && self->brought_.ok()) self->start_prepared();
  self->changed_.notify();
}

net::Task<Result<void>> Context::make_ready(std::shared_ptr<Kernel> kernel) {
  ATOLL_CO_TRY_ASSIGN(const auto env, launcher_.environment(*spec_.language, spec_.env));
  kernel->send_start(env, spec_.cwd);
  auto waiting =
      until(kernel->changed(), [&] { return kernel->ready() || !kernel->alive(); }, kReadyTime);
  const bool in_time = co_await std::move(waiting);
  if (kernel->alive() && kernel->ready()) co_return Result<void>();
  const std::string words = printable(kernel->first_words(), 2048);
  if (!in_time) co_return make_error(Errc::deadline_exceeded, "the kernel was not ready in time");
  co_return make_error(Errc::unavailable,
                       "the kernel ended while it started" + (words.empty() ? "" : ": " + words));
}

net::Task<Result<std::shared_ptr<Kernel>>> Context::ready_kernel() {
  const auto self = shared_from_this();
  for (int tries = 0;; ++tries) {
    if (removed_) co_return make_error(Errc::aborted, "the context was removed");
    if (has_kernel() && kernel_->ready()) co_return kernel_;
    if (!bringing_) {
      // A first try may have been somebody's preparation.
      if (tries > 0 && !brought_.ok()) co_return brought_.error();
      bring(Bring::ready);
    }
    while (bringing_ && !removed_) {
      auto waiting = changed_.wait();
      co_await std::move(waiting);
    }
  }
}

net::Task<Result<void>> Context::warm(Clock::duration time) {
  const auto self = shared_from_this();
  const auto begin = Clock::now();
  prepare();
  auto launching = until(changed_, [&] { return has_kernel() || !bringing_ || removed_; }, time);
  co_await std::move(launching);
  if (!has_kernel()) {
    co_return make_error(Errc::unavailable,
                         brought_.ok() ? "there is no kernel" : brought_.error().message);
  }
  const auto kernel = kernel_;
  if (!kernel->warmed()) kernel->send_warm();
  auto warming = until(
      kernel->changed(), [&] { return kernel->warmed() || !kernel->alive(); },
      time - std::min<Clock::duration>(time, Clock::now() - begin));
  co_await std::move(warming);
  if (kernel->alive() && kernel->warmed()) co_return Result<void>();
  co_return make_error(Errc::unavailable, "the kernel is not warm");
}

void Context::drop_kernel() {
  ++generation_;
  bringing_ = false;
  if (const auto kernel = std::exchange(kernel_, nullptr)) kernel->kill();
  changed_.notify();
}

// ---- runs ----

void Context::enqueue(std::shared_ptr<Run> run) {
  queue_.push_back(std::move(run));
  if (!std::exchange(working_, true)) asio::co_spawn(io_, work(shared_from_this()), asio::detached);
}

void Context::outlive_clients(Clock::duration time) {
  outlives_until_ = Clock::now() + time;
  if (current_) current_->outlive_client();
  for (const auto& run : queue_) run->outlive_client();
}

void Context::abandon(const std::shared_ptr<Run>& run) {
  if (Clock::now() < outlives_until_) run->outlive_client();
  run->abandon();
  if (!run->abandoned()) return;
  std::erase(queue_, run);
  if (run == current_ && kernel_) kernel_->changed().notify();
}

net::Task<Result<void>> Context::restart() {
  const auto self = shared_from_this();
  end_run(current_);
  drop_kernel();
  notice_.clear();
  auto bringing = ready_kernel();
  auto kernel = co_await std::move(bringing);
  if (!kernel.ok()) co_return std::move(kernel).error();
  co_return Result<void>();
}

void Context::remove() {
  removed_ = true;
  end_run(current_);
  for (const auto& run : std::exchange(queue_, {})) end_run(run);
  drop_kernel();
}

void Context::end_run(const std::shared_ptr<Run>& run) {
  if (run)
    run->fail("UnexpectedEndOfExecution",
              "Connection to the execution was closed before the execution was finished");
}

net::Task<void> Context::work(std::shared_ptr<Context> self) {
  while (!self->queue_.empty()) {
    self->current_ = std::move(self->queue_.front());
    self->queue_.pop_front();
    auto serving = self->serve(self->current_);
    co_await std::move(serving);
    self->current_.reset();
  }
  self->working_ = false;
}

net::Task<void> Context::serve(std::shared_ptr<Run> run) {
  auto bringing = ready_kernel();
  auto got = co_await std::move(bringing);
  if (run->ended() || run->abandoned()) co_return;
  if (!got.ok()) co_return run->fail("KernelUnavailable", got.error().message);
  const std::shared_ptr<Kernel> kernel = *std::move(got);
  kernel->execute(run, std::exchange(notice_, {}));
  const auto over = [&] { return !kernel->busy() || !kernel->alive(); };
  while (!over() && !run->unwanted()) {
    auto waiting = kernel->changed().wait();
    co_await std::move(waiting);
  }
  if (!over()) {
    auto stopping = stop(run, kernel);
    co_await std::move(stopping);
  }
  if (kernel == kernel_ && (!kernel->alive() || kernel->wants_restart())) {
    drop_kernel();
    bring(Bring::ready);  // so that the next run finds one
  }
  run->fail("ContextRestarting", "Context was restarted");
}

// Interrupts a run that nobody wants any more.
net::Task<void> Context::stop(std::shared_ptr<Run> run, std::shared_ptr<Kernel> kernel) {
  const auto over = [&] { return !kernel->busy() || !kernel->alive(); };
  // Before it has begun, the runner would take the signal for one that came too late.
  auto beginning =
      until(kernel->changed(), [&] { return over() || run->is_started(); }, kInterruptTime);
  co_await std::move(beginning);
  kernel->interrupt();
  auto ending = until(kernel->changed(), over, kInterruptTime);
  if (co_await std::move(ending)) co_return;
  log::info("a kernel ignored an interrupt and is ended", {{"context", spec_.id}});
  notice_ = kNotStopped;
  run->end(Run::State::lost);
  kernel->kill();
}

}  // namespace atl::agent::interpreter
