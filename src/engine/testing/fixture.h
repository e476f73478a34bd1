// What tests of the engine and of the layers above it share: a home in a temporary directory, a
// running io_context, an engine over a FakeRuntime with one template.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_future.hpp>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/fake_runtime.h"
#include "store/keys.h"

namespace atl::engine::testing {

inline constexpr const char* kTemplateId = "abcdefghij0123456789";

class ManualClock {
 public:
  Timestamp now() const { return from_ns(ns_.load()); }
  void advance(std::chrono::nanoseconds by) { ns_ += by.count(); }

 private:
  std::atomic<std::int64_t> ns_ = 1'767'225'600'000'000'000;  // 2026-01-01
};

class Home {
 public:
  Home();
  ~Home();
  const std::filesystem::path& path() const { return path_; }
  // Writes or replaces a template; `extra` are more members of its manifest, with a comma at the
  // end.
  void add_template(const std::string& dir, const std::string& id, const std::string& name,
                    int build, const std::string& extra = {});

 private:
  std::filesystem::path path_;
  int changes_ = 0;
};

// Runs an io_context with a few threads until it is stopped or destroyed.
class Threads {
 public:
  explicit Threads(int count = 2);
  ~Threads();
  void stop();
  net::asio::io_context io;

 private:
  net::asio::executor_work_guard<net::asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
};

class Fixture {
 public:
  explicit Fixture(EngineOptions options = {}, bool start = true);
  void start() { EXPECT_TRUE(run(engine->start()).ok()); }
  ~Fixture();

  // Runs a coroutine on a strand of its own and waits for what it returns.
  template <class T>
  T run(net::Task<T> task) {
    auto shared = std::make_shared<std::optional<T>>();
    net::asio::co_spawn(net::asio::make_strand(threads.io), keep(std::move(task), shared),
                        net::asio::use_future)
        .get();
    return std::move(**shared);
  }
  void run(net::Task<void> task) {
    net::asio::co_spawn(net::asio::make_strand(threads.io), std::move(task), net::asio::use_future)
        .get();
  }

  // Runs a coroutine and does not wait for it.
  template <class T>
  void begin(net::Task<T> task) {
    auto shared = std::make_shared<std::optional<T>>();
    net::asio::co_spawn(net::asio::make_strand(threads.io), keep(std::move(task), shared),
                        [](std::exception_ptr) {});
  }
  // The engine dies where it is; another one starts over the same store and runtime.
  void restart();

  Caller caller() const { return Caller{store->default_team().id, key.record.id}; }
  CreateCommand command() const;
  // Polls every few milliseconds, for at most five seconds.
  static bool eventually(const std::function<bool()>& condition);

  Home home;
  Threads threads;
  std::unique_ptr<store::Store> store;
  store::NewKey key;
  FakeRuntime runtime;
  std::unique_ptr<Engine> engine;

 private:
  EngineOptions options_;
  std::vector<std::unique_ptr<Engine>> dead_;
  template <class T>
  static net::Task<void> keep(net::Task<T> task, std::shared_ptr<std::optional<T>> into) {
    into->emplace(co_await std::move(task));
  }
};

}  // namespace atl::engine::testing
