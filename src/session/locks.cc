#include "session/locks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "engine/commands.h"
#include "engine/completion.h"

namespace atl::session {
namespace {

constexpr std::size_t kMaxWaiting = 256;  // for one name

}  // namespace

struct Locks::State {
  mutable std::mutex mutex;
  // A name that is there is locked; these wait for it.
  std::map<std::string, std::deque<std::shared_ptr<engine::Completion>>> waiting;

  void release(const std::string& name) {
    std::lock_guard lock(mutex);
    const auto found = waiting.find(name);
    if (found == waiting.end()) return;
    if (found->second.empty()) {
      waiting.erase(found);
      return;
    }
    // It stays locked, by the next one.
    found->second.front()->set();
    found->second.pop_front();
  }
};

Locks::Guard::Guard(Guard&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)), name_(std::move(other.name_)) {}

Locks::Guard& Locks::Guard::operator=(Guard&& other) noexcept {
  if (this != &other) {
    release();
    state_ = std::exchange(other.state_, nullptr);
    name_ = std::move(other.name_);
  }
  return *this;
}

void Locks::Guard::release() {
  if (const auto state = std::exchange(state_, nullptr)) state->release(name_);
}

Locks::Locks() : state_(std::make_shared<State>()) {}
Locks::~Locks() = default;

net::Task<Result<Locks::Guard>> Locks::lock(std::string name, std::chrono::milliseconds limit) {
  const auto state = state_;
  const auto turn = std::make_shared<engine::Completion>();
  {
    std::lock_guard lock(state->mutex);
    const auto [entry, mine] = state->waiting.try_emplace(name);
    if (mine) co_return Guard(state, std::move(name));
    if (entry->second.size() >= kMaxWaiting)
      co_return engine::transient_refusal("too many requests wait for this session; try again");
    entry->second.push_back(turn);
  }
  auto waiting = turn->wait(limit);
  co_await std::move(waiting);
  std::lock_guard lock(state->mutex);
  // Whoever released it may have chosen us just when our patience ended.
  if (turn->is_set()) co_return Guard(state, std::move(name));
  std::erase(state->waiting[name], turn);
  co_return make_error(Errc::deadline_exceeded,
                       "the session is busy with an earlier request; try again");
}

std::size_t Locks::size() const {
  std::lock_guard lock(state_->mutex);
  return state_->waiting.size();
}

}  // namespace atl::session
