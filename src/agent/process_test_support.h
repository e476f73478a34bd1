// For tests of processes: an io_context with a reaper and a manager, and coroutines run to their
// end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "agent/process_manager.h"

namespace atl::agent {

namespace asio = net::asio;

inline net::Task<void> sleep_for(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  timer.expires_after(time);
  co_await timer.async_wait(asio::use_awaitable);
}

// What one subscriber saw.
struct Transcript {
  std::string out;
  std::string err;
  std::string pty;
  std::optional<::process::ProcessEvent::EndEvent> end;
  int silences = 0;

  void add(const ::process::ProcessEvent& event) {
    out += event.data().stdout();
    err += event.data().stderr();
    pty += event.data().pty();
    if (event.has_end()) end = event.end();
  }
};

inline net::Task<Transcript> follow(Subscription& subscription) {
  Transcript seen;
  while (!seen.end && seen.silences < 5) {
    const Event event = co_await subscription.next(std::chrono::seconds(4));
    if (event) {
      seen.add(event->event());
    } else {
      ++seen.silences;
    }
  }
  co_return seen;
}

class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(reaper_.start().ok()); }

  template <class T>
  T run(net::Task<T> task) {
    std::optional<T> out;
    asio::co_spawn(io_, std::move(task), [&](std::exception_ptr e, T value) {
      if (e) std::rethrow_exception(e);
      out.emplace(std::move(value));
      io_.stop();
    });
    io_.restart();
    io_.run_for(std::chrono::seconds(30));
    EXPECT_TRUE(out.has_value()) << "the test did not finish";
    return std::move(*out);
  }

  static ProcessSpec shell(std::string script) {
    ProcessSpec spec;
    spec.config.set_cmd("/bin/sh");
    spec.config.add_args("-c");
    spec.config.add_args(std::move(script));
    spec.user.name = "me";
    spec.user.uid = ::getuid();
    spec.user.gid = ::getgid();
    spec.user.groups = {::getgid()};
    spec.user.home = "/";
    spec.cwd = "/";
    spec.env = {"PATH=/usr/bin:/bin"};
    return spec;
  }

  ProcessManager::Started start(ProcessSpec spec) {
    auto started = processes_.start(std::move(spec));
    EXPECT_TRUE(started.ok()) << started.error().message;
    return *std::move(started);
  }

  asio::io_context io_;
  Reaper reaper_{io_};
  ProcessManager processes_{io_, reaper_};
};

}  // namespace atl::agent
