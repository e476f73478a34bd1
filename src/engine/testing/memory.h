// What tests of memory in files share.
#pragma once

#include <algorithm>
#include <future>

#include "engine/testing/fixture.h"

namespace atl::engine::testing {

// An engine over a runtime that can write memory to files.
class MemoryFixture : public Fixture {
 public:
  explicit MemoryFixture(EngineOptions options = {}) : Fixture(std::move(options), false) {
    runtime.durable = true;
    start();
  }

  SandboxId make(const std::function<void(CreateCommand&)>& change = {}) {
    auto asked = command();
    if (change) change(asked);
    auto made = run(engine->create(asked));
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made->record.id;
  }
  store::SandboxRecord record(const SandboxId& id) {
    auto info = engine->info(caller(), id);
    return info.ok() ? info->record : store::SandboxRecord{.id = id, .state = SandboxState::killed};
  }
  SandboxState state(const SandboxId& id) { return record(id).state; }
  store::MemoryTier tier(const SandboxId& id) { return record(id).memory_tier; }
  Result<void> pause(const SandboxId& id, bool memory = true) {
    return run(engine->pause(caller(), id, memory));
  }
  Result<Connected> connect(const SandboxId& id) {
    return run(engine->connect(caller(), id, std::chrono::seconds(60)));
  }
  template <class T>
  std::future<T> later(net::Task<T> task) {
    auto shared = std::make_shared<net::Task<T>>(std::move(task));
    return std::async(std::launch::async, [this, shared] { return run(std::move(*shared)); });
  }
  std::size_t count(const std::string& call) const {
    const auto all = runtime.calls();
    return std::size_t(std::count(all.begin(), all.end(), call));
  }
  bool dumping() {
    return eventually([&] { return runtime.dumping() > 0; });
  }
};

}  // namespace atl::engine::testing
