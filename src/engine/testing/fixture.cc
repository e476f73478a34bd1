#include "engine/testing/fixture.h"

#include <gtest/gtest.h>

#include <fstream>

namespace atl::engine::testing {

namespace fs = std::filesystem;

Home::Home() {
  std::string pattern = (fs::temp_directory_path() / "atoll-home-XXXXXX").string();
  path_ = mkdtemp(pattern.data());
  add_template("base-1", kTemplateId, "base", 1);
}

void Home::add_template(const std::string& dir, const std::string& id, const std::string& name,
                        int build, const std::string& extra) {
  const fs::path all = path_ / "templates";
  const fs::path made = all / ".building";
  fs::create_directories(made);
  std::ofstream(made / "manifest.json")
      << "{" << extra << R"("version":1,"templateID":")" << id << R"(","names":[")" << name
      << R"("],"buildID":"3f1f64b4-0000-4000-8000-00000000000)" << build
      << R"(","cpuCount":2,"memoryMB":512,"diskMB":1024,"envdVersion":"0.6.13",)"
      << R"("createdAt":"2026-01-01T00:00:00Z","defaultUser":"user"})";
  fs::remove_all(all / dir);
  fs::rename(made, all / dir);
  // Coarse clocks of file systems must not hide a change.
  fs::last_write_time(all, fs::last_write_time(all) + std::chrono::seconds(++changes_));
}

Home::~Home() { fs::remove_all(path_); }

Threads::Threads(int count) : work_(net::asio::make_work_guard(io)) {
  for (int i = 0; i < count; ++i) {
    threads_.emplace_back([this] { io.run(); });
  }
}

Threads::~Threads() { stop(); }

void Threads::stop() {
  work_.reset();
  io.stop();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

Fixture::Fixture(EngineOptions options, bool start) : runtime(threads.io) {
  auto opened = store::Store::open((home.path() / "state.db").string());
  EXPECT_TRUE(opened.ok());
  store = std::move(opened).value();
  key = std::move(store::create_key(*store, store->default_team().id, "test")).value();
  options.home = home.path();
  options_ = options;
  auto made = Engine::create(threads.io, *store, runtime, std::move(options));
  EXPECT_TRUE(made.ok());
  engine = std::move(made).value();
  if (start) EXPECT_TRUE(run(engine->start()).ok());
}

Fixture::~Fixture() {
  run(engine->shutdown(std::chrono::milliseconds(5'000), AtShutdown::kill_sandboxes));
  threads.stop();  // engines that died may still be waiting for a timer
}

void Fixture::restart() {
  // Its loops end; its transitions stay where they are, held by operations that never come back.
  run(engine->shutdown(std::chrono::milliseconds(0), AtShutdown::leave_sandboxes));
  dead_.push_back(std::move(engine));
  {
    runtime.hangs_before.clear();
    runtime.hangs_after.clear();
  }
  auto made = Engine::create(threads.io, *store, runtime, options_);
  EXPECT_TRUE(made.ok());
  engine = std::move(made).value();
  auto started = run(engine->start());
  EXPECT_TRUE(started.ok());
}

CreateCommand Fixture::command() const {
  CreateCommand command;
  command.caller = caller();
  command.timeout = std::chrono::seconds(60);
  return command;
}

bool Fixture::eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

}  // namespace atl::engine::testing
