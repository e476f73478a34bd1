#include "agent/interpreter/run.h"

#include <fmt/format.h>

#include <utility>

namespace atl::agent::interpreter {
namespace {

constexpr std::size_t kCongested = 1 << 20;
// A client may end the sandbox as soon as it reads an error, so the lines that belong to it go out
// in the same write: the runner sends them at once, but a busy machine may stop it in between.
constexpr std::chrono::milliseconds kHoldError{250};
// All of a run that is over at once goes out in one write, too: every write wakes the client and
// whoever is between.
constexpr std::chrono::milliseconds kHoldStart{2};

}  // namespace

Run::Run(std::string request, RunLimits limits) : request_(std::move(request)), limits_(limits) {}

void Run::started(std::int64_t execution_count, std::string_view notice) {
  if (std::exchange(started_, true) || drops()) return;
  held_until_ = Clock::now() + kHoldStart;
  add(count_line(execution_count));
  if (!notice.empty()) add(output_line(Output::err, notice));
}

void Run::relay(LineType type, std::string_view line) {
  if (drops()) return;
  bytes_ += line.size() + 1;
  if (type == LineType::result) ++results_;
  if (bytes_ > limits_.bytes) {
    limit_ = fmt::format("more than {} MiB of output", limits_.bytes >> 20);
  } else if (results_ > limits_.results) {
    limit_ = fmt::format("more than {} results", limits_.results);
  }
  if (over_limit()) return room_.notify();
  if (type == LineType::error) held_until_ = Clock::now() + kHoldError;
  out_ += line;
  out_ += '\n';
  changed_.notify();
}

void Run::text(Output output, std::string_view utf8) {
  if (utf8.empty() || drops()) return;
  const std::string line = output_line(output, utf8);
  relay(LineType::output, std::string_view(line).substr(0, line.size() - 1));
}

void Run::oversized() {
  if (drops()) return;
  limit_ = fmt::format("a single message of more than {} MiB", kMaxLine >> 20);
  room_.notify();
}

void Run::end(State state) {
  if (ended_) return;
  if (over_limit()) {
    out_ += error_line(
        "OutputLimitExceeded",
        "The run wrote " + limit_ + " and was interrupted" +
            (state == State::lost ? "; it did not stop, so the context was restarted" : ""));
  }
  out_ += kEndLine;
  ended_ = true;
  changed_.notify();
  room_.notify();
}

void Run::fail(std::string_view name, std::string_view value) {
  if (ended_) return;
  limit_.clear();
  out_ += error_line(name, value);
  end();
}

bool Run::congested() const { return out_.size() >= kCongested && !drops(); }

net::Task<Run::Batch> Run::next(Clock::duration patience) {
  const Clock::time_point until = Clock::now() + patience;
  for (;;) {
    const Clock::time_point now = Clock::now();
    const bool held = !ended_ && now < held_until_;
    if (ended_ || (!out_.empty() && !held)) {
      Batch batch{std::exchange(out_, {}), ended_};
      room_.notify();
      co_return batch;
    }
    if (out_.empty() && now >= until) co_return Batch{};
    auto waiting = changed_.wait_until(held && !out_.empty() ? held_until_ : until);
    co_await std::move(waiting);
  }
}

void Run::abandon() {
  (outlives_ ? unheard_ : abandoned_) = true;
  out_.clear();
  changed_.notify();
  room_.notify();
}

void Run::add(std::string_view lines) {
  out_ += lines;
  changed_.notify();
}

}  // namespace atl::agent::interpreter
