#include "sdk/core.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "sdk/embedded.h"

namespace atl::sdk {
namespace {

struct Latch {
  explicit Latch(asio::io_context& io) : timer(io, asio::steady_timer::time_point::max()) {}
  asio::steady_timer timer;
  bool done = false;
  bool well = false;
};

bool ran_well(const std::function<void()>& callback) {
  try {
    callback();
    return true;
  } catch (...) {
    return false;  // the call that it belongs to fails
  }
}

void join_or_leave(std::thread& thread) {
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

}  // namespace

void Mailbox::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void Mailbox::run() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void Mailbox::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
}

void Mailbox::abandon() {
  std::deque<std::function<void()>> dropped;  // their ends may come back here
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(tasks_);
  }
  changed_.notify_one();
}

void Gate::pass(const std::function<void()>& callback) {
  {
    std::lock_guard lock(mutex_);
    if (shut_) return;
    runs_in_ = std::this_thread::get_id();
  }
  struct End {
    Gate& gate;
    ~End() {
      {
        std::lock_guard lock(gate.mutex_);
        gate.runs_in_.reset();
      }
      gate.ended_.notify_all();
    }
  } const end{*this};  // also when it throws
  callback();
}

void Gate::shut() {
  std::lock_guard lock(mutex_);
  shut_ = true;
}

void Gate::shut_and_wait() {
  std::unique_lock lock(mutex_);
  shut_ = true;
  if (runs_in_ == std::this_thread::get_id()) return;
  ended_.wait(lock, [this] { return !runs_in_; });
}

bool Gate::is_shut() const {
  std::lock_guard lock(mutex_);
  return shut_;
}

Core::Core(client::Account account, std::unique_ptr<Child> child)
    : account_(std::move(account)), io_(std::make_shared<Io>()), child_(std::move(child)) {
  network_ = std::thread([io = io_] { io->context.run(); });
}

Core::~Core() {
  if (dispatcher_) dispatcher_->abandon();
  join_or_leave(callbacks_);
  io_->context.stop();
  join_or_leave(network_);
  io_.reset();  // and with it, if nobody else holds it, what was under way
}

std::shared_ptr<Mailbox> Core::dispatcher() {
  std::lock_guard lock(mutex_);
  if (!dispatcher_) {
    dispatcher_ = std::make_shared<Mailbox>();
    callbacks_ = std::thread([box = dispatcher_] { box->run(); });
  }
  return dispatcher_;
}

net::Task<bool> deliver(std::shared_ptr<Io> io, std::shared_ptr<Mailbox> box,
                        std::function<void()> callback) {
  auto latch = std::make_shared<Latch>(io->context);
  // Weak pointers: the Io owns this coroutine, which owns the latch, and may end before the
  // callback.
  box->post([weak_io = std::weak_ptr<Io>(io), weak = std::weak_ptr<Latch>(latch),
             callback = std::move(callback)] {
    const bool well = ran_well(callback);
    const auto alive = weak_io.lock();
    if (!alive) return;
    asio::post(alive->context, [weak, well] {
      const auto waiting = weak.lock();
      if (!waiting) return;
      waiting->well = well;
      waiting->done = true;
      waiting->timer.cancel();
    });
  });
  io.reset();
  while (!latch->done) (void)co_await latch->timer.async_wait(asio::as_tuple(asio::use_awaitable));
  co_return latch->well;
}

net::Task<bool> deliver(std::shared_ptr<Io> io, std::shared_ptr<Mailbox> box,
                        std::shared_ptr<Gate> gate, std::function<void()> callback) {
  return deliver(
      std::move(io), std::move(box),
      [gate = std::move(gate), callback = std::move(callback)] { gate->pass(callback); });
}

Error public_error(const atl::Error& error) {
  return Error{static_cast<Code>(error.code), error.message};
}

Error callback_threw() { return Error{Code::canceled, "a callback threw an exception"}; }

const char* name_of(Code code) { return connect_name(static_cast<Errc>(code)).data(); }

}  // namespace atl::sdk
