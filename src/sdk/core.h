// Core: what every handle of the library shares: the account, a thread for the network, a thread
// for callbacks, and the embedded engine if there is one.
//
// Theory of operation. All coroutines run in the one thread of `Io`; no code of the user does. A
// callback goes to a Mailbox: for a blocking call that of the calling thread, which runs it while
// it waits; for an async call that of the dispatcher. The coroutine waits until the callback has
// returned, so a slow callback slows its own stream down and nothing else, and a callback may call
// the library.
//
// Handles may be dropped anywhere, also inside a callback. Then the threads end by themselves: each
// holds what it needs, and the one that drops the last handle does not wait for itself. Coroutines
// that are still there are destroyed with the Io; whoever waits for one gets Code::canceled.
#pragma once

#include <atoll/client.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "client/remote_sandbox.h"
#include "net/task.h"

namespace atl::sdk {

namespace asio = net::asio;

class Child;  // embedded.h

// Callbacks on their way to the thread that runs them.
class Mailbox {
 public:
  // Dropped if it is closed.
  void post(std::function<void()> task);
  // Runs what comes, until it is closed and empty.
  void run();
  void close();
  // Nothing that waits is run any more.
  void abandon();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool closed_ = false;
};

// The last step to a listener, which can be shut: then no callback begins any more.
class Gate {
 public:
  // Runs it unless it is shut.
  void pass(const std::function<void()>& callback);
  void shut();
  // And waits for a callback that runs, unless it is called by that one.
  void shut_and_wait();
  bool is_shut() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<std::thread::id> runs_in_;  // where a callback runs now
  bool shut_ = false;
};

struct Io {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
};

// What somebody waits for. If it never comes the answer is `canceled`.
template <class T>
struct Pending {
  explicit Pending(T (*c)()) : canceled(c) {}
  ~Pending() {
    if (!set) set_value(canceled());
  }
  void set_value(T value) {
    set = true;
    promise.set_value(std::move(value));
    if (finally) finally();
  }
  std::promise<T> promise;
  T (*canceled)();
  std::function<void()> finally;
  bool set = false;
};

template <class T>
T canceled_result() {
  return Error{Code::canceled, "the client went away"};
}

template <class T>
net::Task<void> fulfil(net::Task<T> task, std::shared_ptr<Pending<T>> pending) {
  T value = co_await std::move(task);
  pending->set_value(std::move(value));
}

class Core {
 public:
  explicit Core(client::Account account, std::unique_ptr<Child> child = nullptr);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  const client::Account& account() const { return account_; }
  const std::shared_ptr<Io>& io() const { return io_; }
  // Of async calls. Its thread starts with the first of them.
  std::shared_ptr<Mailbox> dispatcher();

  template <class T>
  std::future<T> spawn(net::Task<T> task, T (*canceled)() = canceled_result<T>) {
    auto pending = std::make_shared<Pending<T>>(canceled);
    return start(std::move(task), std::move(pending));
  }
  template <class T>
  T wait(net::Task<T> task, T (*canceled)() = canceled_result<T>) {
    return spawn(std::move(task), canceled).get();
  }
  // With callbacks, which come by `box` and run in this thread.
  template <class T>
  T wait(const std::shared_ptr<Mailbox>& box, net::Task<T> task,
         T (*canceled)() = canceled_result<T>) {
    auto pending = std::make_shared<Pending<T>>(canceled);
    pending->finally = [box] { box->close(); };
    auto future = start(std::move(task), std::move(pending));
    box->run();
    return future.get();
  }

 private:
  template <class T>
  std::future<T> start(net::Task<T> task, std::shared_ptr<Pending<T>> pending) {
    auto future = pending->promise.get_future();
    // A coroutine that throws (no memory) leaves `pending` to its end.
    asio::co_spawn(io_->context, fulfil(std::move(task), std::move(pending)),
                   [](std::exception_ptr) {});
    return future;
  }

  client::Account account_;
  std::shared_ptr<Io> io_;
  std::thread network_;
  std::mutex mutex_;  // guards the two below
  std::shared_ptr<Mailbox> dispatcher_;
  std::thread callbacks_;
  std::unique_ptr<Child> child_;
};

// Runs a callback where `box` says, and returns after it. False: it threw.
net::Task<bool> deliver(std::shared_ptr<Io> io, std::shared_ptr<Mailbox> box,
                        std::function<void()> callback);
// The same if `gate` lets it pass. True if not.
net::Task<bool> deliver(std::shared_ptr<Io> io, std::shared_ptr<Mailbox> box,
                        std::shared_ptr<Gate> gate, std::function<void()> callback);

// ---- the library's own types from the inner ones ----
Error public_error(const atl::Error& error);
inline Error public_error(atl::Error&& error) { return public_error(std::as_const(error)); }

template <class T>
net::Task<Result<T>> publish(net::Task<atl::Result<T>> task) {
  auto result = co_await std::move(task);
  if (!result.ok()) co_return public_error(result.error());
  if constexpr (std::is_void_v<T>) {
    co_return Result<void>();
  } else {
    co_return std::move(*result);
  }
}

Error callback_threw();

}  // namespace atl::sdk
