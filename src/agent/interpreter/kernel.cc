#include "agent/interpreter/kernel.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <cerrno>
#include <utility>

#include "agent/interpreter/process_tree.h"
#include "base/log.h"

namespace atl::agent::interpreter {
namespace {

namespace asio = net::asio;
constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kPipeRead = 16 << 10;
constexpr std::size_t kFirstWords = 4 << 10;
// What may still be taken from a kernel that has ended, or from its pipes at the end of a run.
constexpr std::size_t kLastBytes = 1 << 20;

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

std::shared_ptr<asio::posix::stream_descriptor> adopt(asio::io_context& io, Fd fd) {
  if (!fd) return nullptr;
  set_nonblocking(fd.get());
  auto descriptor = std::make_shared<asio::posix::stream_descriptor>(io);
  boost::system::error_code ec;
  descriptor->assign(fd.get(), ec);
  if (ec) return nullptr;  // the reactor is out of memory: this pipe is not read
  (void)fd.release();
  return descriptor;
}

}  // namespace

Kernel::Kernel(asio::io_context& io, pid_t pid, Ends ends)
    : io_(io),
      pid_(pid),
      socket_(io),
      out_{adopt(io, std::move(ends.out)), {}},
      err_{adopt(io, std::move(ends.err)), {}} {
  set_nonblocking(ends.socket.get());
  boost::system::error_code ec;
  socket_.assign(asio::local::stream_protocol(), ends.socket.get(), ec);
  if (!ec) (void)ends.socket.release();
}

void Kernel::begin() {
  asio::co_spawn(io_, read_loop(shared_from_this()), asio::detached);
  for (const Output output : {Output::out, Output::err}) {
    if (pipe(output).from)
      asio::co_spawn(io_, pipe_loop(shared_from_this(), output), asio::detached);
  }
}

void Kernel::on_exit(int wait_status) {
  const auto self = shared_from_this();
  exited_ = true;
  if (!dead_) {
    // What it wrote is there already; others may hold its socket and pipes open.
    drain_socket();
    drain_pipes();
    die();
  }
  if (auto told = std::exchange(reaped, nullptr)) told(wait_status);
}

// ---- to the runner ----

void Kernel::send_start(const std::vector<std::string>& env, std::string_view cwd) {
  if (std::exchange(start_sent_, true)) return;
  send(start_line(env, cwd));
}

void Kernel::send_warm() {
  if (std::exchange(warm_sent_, true)) return;
  send("{\"op\":\"warm\"}\n");
}

void Kernel::send_forked(std::string_view seed,
                         const std::map<std::string, std::string>& identity) {
  send(forked_line(seed, identity));
}

void Kernel::execute(std::shared_ptr<Run> run, std::string notice) {
  if (dead_) return;
  ATOLL_CHECK(!run_);
  run_ = std::move(run);
  notice_ = std::move(notice);
  out_.join = {};
  err_.join = {};
  warmed_ = true;
  send(run_->take_request());
}

void Kernel::interrupt() {
  if (run_ && !dead_ && !exited_) ::kill(pid_, SIGINT);
}

void Kernel::kill() {
  if (!dead_) die();
}

// Most lines fit the socket's buffer at once.
void Kernel::send(std::string line) {
  if (dead_) return;
  std::string_view rest = line;
  while (!sending_ && !rest.empty()) {
    const ssize_t n =
        ::send(socket_.native_handle(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return;  // its end is noticed by the reading side
    if (n < 0) break;
    rest.remove_prefix(std::size_t(n));
  }
  if (rest.empty()) return;
  unsent_ += rest;
  if (!std::exchange(sending_, true))
    asio::co_spawn(io_, send_rest(shared_from_this()), asio::detached);
}

net::Task<void> Kernel::send_rest(std::shared_ptr<Kernel> self) {
  std::size_t sent = 0;
  while (sent < self->unsent_.size() && !self->dead_) {
    auto [ec] =
        co_await self->socket_.async_wait(asio::local::stream_protocol::socket::wait_write, kUse);
    if (ec || self->dead_) break;
    const ssize_t n = ::send(self->socket_.native_handle(), self->unsent_.data() + sent,
                             self->unsent_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) sent += std::size_t(n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) break;
  }
  self->unsent_.clear();
  self->unsent_.shrink_to_fit();
  self->sending_ = false;
}

// ---- from the runner ----

net::Task<void> Kernel::wait_for_room(std::shared_ptr<Kernel> self) {
  while (!self->dead_ && self->run_ && self->run_->congested()) {
    const std::shared_ptr<Run> run = self->run_;
    auto waiting = run->room().wait();
    co_await std::move(waiting);
  }
}

net::Task<void> Kernel::read_loop(std::shared_ptr<Kernel> self) {
  for (;;) {
    if (self->run_ && self->run_->congested()) {
      auto room = wait_for_room(self);
      co_await std::move(room);
    }
    if (self->dead_) co_return;
    const std::span<char> space = self->lines_.space();
    auto [ec, n] =
        co_await self->socket_.async_read_some(asio::buffer(space.data(), space.size()), kUse);
    if (self->dead_) co_return;
    if (ec) break;
    self->lines_.added(n);
    self->handle_lines();
  }
  self->drain_pipes();
  self->die();
}

void Kernel::handle_lines() {
  LineBuffer::Line line;
  while (!dead_ && lines_.next(line)) {
    if (!line.oversized) {
      handle(line.text);
    } else if (run_) {
      run_->oversized();
    }
  }
  if (run_ && run_->unwanted()) changed_.notify();
}

void Kernel::handle(std::string_view text) {
  const RunnerLine line = read_line(text, scratch_);
  switch (line.type) {
    case LineType::invalid:
      log::warn("a runner sent a line that is no message", {{"pid", std::to_string(pid_)}});
      die();
      return;
    case LineType::ready:
      ready_ = true;
      changed_.notify();
      return;
    case LineType::warmed:
      warmed_ = true;
      changed_.notify();
      return;
    case LineType::started:
      if (run_) run_->started(line.execution_count, std::exchange(notice_, {}));
      changed_.notify();
      return;
    case LineType::error:
      drain_pipes();
      [[fallthrough]];
    case LineType::output:
    case LineType::result:
      if (run_) run_->relay(line.type, text);
      return;
    case LineType::done:
      drain_pipes();
      finish_run(line.restart);
      return;
  }
}

void Kernel::finish_run(bool restart) {
  if (!run_) return;
  wants_restart_ = restart;
  const auto run = std::exchange(run_, nullptr);
  run->end();
  changed_.notify();
}

net::Task<void> Kernel::pipe_loop(std::shared_ptr<Kernel> self, Output output) {
  const std::shared_ptr<Descriptor> from = self->pipe(output).from;
  std::vector<char> buffer(kPipeRead);
  for (;;) {
    if (self->run_ && self->run_->congested()) {
      auto room = wait_for_room(self);
      co_await std::move(room);
    }
    if (self->dead_) co_return;
    auto [ec, n] = co_await from->async_read_some(asio::buffer(buffer), kUse);
    if (self->dead_) co_return;
    if (ec) break;
    self->on_pipe(output, std::string_view(buffer.data(), n));
  }
  boost::system::error_code ignored;  // the runner has closed it: nothing more can come
  from->close(ignored);
}

void Kernel::on_pipe(Output output, std::string_view bytes) {
  if (run_) {
    run_->text(output, pipe(output).join.add(bytes));
    if (run_->unwanted()) changed_.notify();
  } else if (!ready_ && first_words_.size() < kFirstWords) {
    first_words_ += bytes.substr(0, kFirstWords - first_words_.size());
  }
}

void Kernel::drain_pipes() {
  static char buffer[kPipeRead];  // one thread, and never across a suspension
  for (const Output output : {Output::out, Output::err}) {
    const auto& from = pipe(output).from;
    if (!from || !from->is_open()) continue;
    for (std::size_t total = 0; total < kLastBytes;) {
      const ssize_t n = ::read(from->native_handle(), buffer, sizeof buffer);
      if (n <= 0) break;
      on_pipe(output, std::string_view(buffer, std::size_t(n)));
      total += std::size_t(n);
    }
  }
}

void Kernel::drain_socket() {
  for (std::size_t total = 0; !dead_ && total < kLastBytes;) {
    const std::span<char> space = lines_.space();
    const ssize_t n = ::recv(socket_.native_handle(), space.data(), space.size(), MSG_DONTWAIT);
    if (n <= 0) break;
    lines_.added(std::size_t(n));
    total += std::size_t(n);
    handle_lines();
  }
}

void Kernel::die() {
  dead_ = true;
  kill_tree(pid_);
  boost::system::error_code ignored;  // closing cannot fail in a way that matters
  socket_.close(ignored);
  for (const Output output : {Output::out, Output::err}) {
    if (pipe(output).from) pipe(output).from->close(ignored);
  }
  run_.reset();
  changed_.notify();
}

}  // namespace atl::agent::interpreter
