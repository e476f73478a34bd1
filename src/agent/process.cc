#include "agent/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <cerrno>

#include "agent/paths.h"

namespace atl::agent {
namespace {

namespace asio = net::asio;
constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
// What may still be taken from the pipes of a killed process: a pipe's capacity and some.
constexpr std::size_t kLastBytes = 1 << 20;

asio::steady_timer condition(asio::io_context& io) {
  asio::steady_timer timer(io);
  timer.expires_at(std::chrono::steady_clock::time_point::max());
  return timer;
}

}  // namespace

::process::StartResponse end_message(const EndStatus& end) {
  ::process::StartResponse message;
  auto* event = message.mutable_event()->mutable_end();
  event->set_exit_code(end.exit_code);
  event->set_exited(end.exited);
  event->set_status(end.status);
  if (end.error) event->set_error(*end.error);
  return message;
}

// ---- Subscription ----

Subscription::Subscription(std::shared_ptr<Process> process)
    : process_(std::move(process)), wake_(process_->io_) {
  process_->subscribers_.push_back(this);
}

Subscription::~Subscription() {
  process_->subscribers_.remove(this);
  process_->room_.cancel();  // the others must not wait for us
}

net::Task<Event> Subscription::next(std::chrono::steady_clock::duration patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (queue_.empty()) {
    if (std::chrono::steady_clock::now() >= until) co_return nullptr;
    wake_.expires_at(until);
    co_await wake_.async_wait(kUse);  // cancelled by a new event
  }
  Event event = std::move(queue_.front());
  queue_.pop_front();
  if (queue_.size() == kQueueLimit - 1) process_->room_.cancel();
  co_return event;
}

// ---- Process ----

Process::Process(asio::io_context& io, pid_t pid, ::process::ProcessConfig config,
                 std::optional<std::string> tag, Pipes pipes, Hooks hooks)
    : io_(io),
      pid_(pid),
      config_(std::move(config)),
      tag_(std::move(tag)),
      hooks_(std::move(hooks)),
      in_(adopt(std::move(pipes.in))),
      out_(adopt(std::move(pipes.out))),
      err_(adopt(std::move(pipes.err))),
      master_(adopt(std::move(pipes.master))),
      room_(condition(io)),
      deadline_(io),
      turn_over_(condition(io)) {}

std::shared_ptr<Process::Descriptor> Process::adopt(Fd fd) {
  if (!fd) return nullptr;
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  auto descriptor = std::make_shared<Descriptor>(io_);
  boost::system::error_code ec;
  descriptor->assign(fd.get(), ec);
  if (ec) return nullptr;  // the reactor is out of memory: the process runs on without this pipe
  (void)fd.release();
  return descriptor;
}

void Process::start_reading() {
  const auto read = [this](const std::shared_ptr<Descriptor>& from, Output output) {
    if (!from) return;
    ++open_outputs_;
    asio::co_spawn(io_, read_loop(shared_from_this(), from, output), asio::detached);
  };
  read(out_, Output::out);
  read(err_, Output::err);
  read(master_, Output::pty);
}

void Process::kill_after(std::chrono::steady_clock::duration time) {
  using Clock = std::chrono::steady_clock;
  time_left_ = time;
  const auto begin = Clock::now();
  const auto beat = std::clamp<Clock::duration>(time, Clock::duration::zero(), kBeat);
  deadline_.expires_at(begin + beat);
  deadline_.async_wait([weak = weak_from_this(), begin, beat](const boost::system::error_code& ec) {
    const auto self = weak.lock();
    if (ec || !self || !self->running_) return;
    const bool frozen = Clock::now() - begin > beat + kBeatSlack;
    const auto left = frozen ? self->time_left_ : self->time_left_ - beat;
    if (left > Clock::duration::zero() || frozen) return self->kill_after(left);
    (void)self->send_signal(SIGKILL);
  });
}

void Process::on_exit(int wait_status) {
  const auto self = shared_from_this();
  running_ = false;
  end_ = end_status(wait_status);
  deadline_.cancel();
  boost::system::error_code ignored;  // closing cannot fail in a way that matters
  if (in_) in_->close(ignored);
  if (hooks_.reaped) hooks_.reaped(*this);
  if (killed_) {
    if (out_) drain(*out_, Output::out);
    if (err_) drain(*err_, Output::err);
    if (master_) drain(*master_, Output::pty);
    finish();
  } else {
    finish_if_done();
  }
}

std::unique_ptr<Subscription> Process::subscribe() {
  return std::make_unique<Subscription>(shared_from_this());
}

// ---- output ----

net::Task<void> Process::read_loop(std::shared_ptr<Process> self, std::shared_ptr<Descriptor> from,
                                   Output output) {
  for (;;) {
    while (!self->finished_ && self->congested()) co_await self->room_.async_wait(kUse);
    auto [ec] = co_await from->async_wait(Descriptor::wait_read, kUse);
    if (ec || self->finished_) co_return;
    if (self->congested()) continue;  // the other pipe was faster
    std::size_t got = 0;
    if (!self->read_once(*from, output, got)) break;
  }
  --self->open_outputs_;
  self->finish_if_done();
}

bool Process::read_once(Descriptor& from, Output output, std::size_t& got) {
  static char buffer[kPipeRead];  // one thread, and never across a suspension
  const std::size_t limit = output == Output::pty ? kPtyRead : kPipeRead;
  const ssize_t n = ::read(from.native_handle(), buffer, limit);
  if (n > 0) {
    got = std::size_t(n);
    publish_bytes(output, std::string(buffer, got));
    return true;
  }
  got = 0;
  return n < 0 &&
         (errno == EAGAIN || errno == EINTR);  // a terminal whose slave is closed gives EIO
}

// A killed process may leave its pipes to others; what it wrote itself is there already.
void Process::drain(Descriptor& from, Output output) {
  std::size_t total = 0;
  std::size_t got = 1;
  while (from.is_open() && got > 0 && total < kLastBytes && read_once(from, output, got))
    total += got;
}

bool Process::congested() const {
  return std::any_of(subscribers_.begin(), subscribers_.end(),
                     [](const Subscription* s) { return s->queue_.size() >= kQueueLimit; });
}

void Process::publish(Event event) {
  for (Subscription* subscriber : subscribers_) {
    subscriber->queue_.push_back(event);
    subscriber->wake_.cancel();
  }
}

void Process::publish_bytes(Output output, std::string bytes) {
  if (subscribers_.empty()) return;
  auto message = std::make_shared<::process::StartResponse>();
  auto* data = message->mutable_event()->mutable_data();
  switch (output) {
    case Output::out:
      data->set_stdout(std::move(bytes));
      break;
    case Output::err:
      data->set_stderr(std::move(bytes));
      break;
    case Output::pty:
      data->set_pty(std::move(bytes));
      break;
  }
  publish(std::move(message));
}

void Process::finish_if_done() {
  if (!running_ && open_outputs_ == 0) finish();
}

void Process::finish() {
  if (finished_) return;
  finished_ = true;
  publish(std::make_shared<::process::StartResponse>(end_message(end_)));
  boost::system::error_code ignored;  // closing cannot fail in a way that matters
  for (const auto& descriptor : {out_, err_, master_}) {
    if (descriptor) descriptor->close(ignored);
  }
  room_.cancel();
  if (hooks_.finished) hooks_.finished(*this);
}

// ---- input ----

// A writer's place in the queue; the first one may write. Gives it up when destroyed, also when its
// coroutine is cancelled.
class Process::Turn {
 public:
  explicit Turn(Process& process)
      : process_(process), place_(process.turns_.insert(process.turns_.end(), 0)) {}
  ~Turn() {
    process_.turns_.erase(place_);
    process_.turn_over_.cancel();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  net::Task<void> wait() {
    while (place_ != process_.turns_.begin()) co_await process_.turn_over_.async_wait(kUse);
  }

 private:
  Process& process_;
  std::list<int>::iterator place_;
};

net::Task<Result<void>> Process::write_all(std::shared_ptr<Descriptor> to, std::string_view bytes) {
  while (!bytes.empty()) {
    if (!to->is_open()) co_return make_error(Errc::internal, "file already closed");
    const ssize_t n = ::write(to->native_handle(), bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(std::size_t(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) co_return make_error(Errc::internal, os_error_text(errno));
    auto [ec] = co_await to->async_wait(Descriptor::wait_write, kUse);
    if (ec) co_return make_error(Errc::internal, "the process ended");
  }
  co_return Result<void>();
}

net::Task<Result<void>> Process::write_stdin(std::string bytes) {
  const auto self = shared_from_this();
  if (is_pty()) {
    co_return make_error(Errc::internal,
                         "error writing to stdin: tty assigned to process — input should be "
                         "written to the pty, not the stdin");
  }
  Turn turn(*this);
  co_await turn.wait();
  if (!in_ || !in_->is_open()) {
    co_return make_error(Errc::internal, "error writing to stdin: stdin not enabled or closed");
  }
  auto writing = write_all(in_, bytes);
  auto written = co_await std::move(writing);
  if (!written.ok()) co_return std::move(written).error().with("error writing to stdin");
  co_return Result<void>();
}

net::Task<Result<void>> Process::write_pty(std::string bytes) {
  const auto self = shared_from_this();
  if (!is_pty())
    co_return make_error(Errc::internal, "error writing to tty: tty not assigned to process");
  Turn turn(*this);
  co_await turn.wait();
  auto writing = write_all(master_, bytes);
  auto written = co_await std::move(writing);
  if (!written.ok()) co_return std::move(written).error().with("error writing to tty");
  co_return Result<void>();
}

net::Task<Result<void>> Process::close_stdin() {
  const auto self = shared_from_this();
  if (is_pty()) {
    co_return make_error(
        Errc::unknown,
        "error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead");
  }
  Turn turn(*this);
  co_await turn.wait();
  boost::system::error_code ignored;  // closing a pipe loses nothing
  if (in_) in_->close(ignored);
  co_return Result<void>();
}

Result<void> Process::resize(WindowSize size) {
  if (!is_pty())
    return make_error(Errc::internal, "error resizing tty: tty not assigned to process");
  auto done = resize_pty(master_->native_handle(), size);
  if (!done.ok()) return make_error(Errc::internal, "error resizing tty: " + done.error().message);
  return {};
}

Result<void> Process::send_signal(int signal) {
  if (!running_)
    return make_error(Errc::internal, "error sending signal: os: process already finished");
  if (::kill(pid_, signal) != 0)
    return make_error(Errc::internal, "error sending signal: " + os_error_text(errno));
  if (signal == SIGKILL || signal == SIGTERM) killed_ = true;
  return {};
}

}  // namespace atl::agent
