#include "runtime/jail/worker.h"

#include <sched.h>
#include <signal.h>

#include <cerrno>
#include <cstring>

#include "sys/datagram.h"
#include "sys/mounts.h"
#include "sys/self.h"

namespace atl::jail {
namespace {

using Clock = std::chrono::steady_clock;

WorkerMessage message_of(WorkerMessage::Kind kind, std::string_view name) {
  WorkerMessage message;
  message.kind = kind;
  wire::to_field_cut(message.name, name);
  return message;
}

void fill(WorkerMessage& message, const Error& error) {
  message.code = std::int32_t(error.code);
  message.sys_errno = error.sys_errno;
  wire::to_field_cut(message.message, error.message);
}

// The peer's end with something unread in it is told once as ECONNRESET, before what it has sent.
Result<std::optional<WorkerMessage>> receive_message(const sys::UniqueFd& socket) {
  auto datagram = sys::receive_datagram(socket, sizeof(WorkerMessage), 0, sys::Wait::yes);
  if (!datagram && datagram.error().sys_errno == ECONNRESET)
    datagram = sys::receive_datagram(socket, sizeof(WorkerMessage), 0, sys::Wait::yes);
  if (!datagram) return std::move(datagram).error();
  if (datagram->bytes.empty()) return std::optional<WorkerMessage>();
  if (datagram->bytes.size() != sizeof(WorkerMessage))
    return make_error(Errc::internal, "a worker sent something else");
  WorkerMessage message;
  std::memcpy(&message, datagram->bytes.data(), sizeof(message));
  return std::optional<WorkerMessage>(message);
}

}  // namespace

Error to_error(const WorkerMessage& message) {
  return Error{Errc(message.code), message.sys_errno,
               std::string(wire::from_field(message.message))};
}

// ---- the worker's side

// What cannot be sent is for a warden that is gone; who waits for an answer sees that.
void WorkerChannel::send(const WorkerMessage& message) {
  (void)sys::send_datagram(socket_, std::as_bytes(std::span(&message, 1)), {}, sys::Wait::yes);
}

// The warden has read it when this returns, or is gone.
void WorkerChannel::ask_to_die() {
  send(message_of(WorkerMessage::die, ""));
  (void)receive_message(socket_);
}

void WorkerChannel::tell(std::string_view name, std::chrono::microseconds took) {
  WorkerMessage message = message_of(WorkerMessage::step, name);
  message.micros = std::uint64_t(took.count());
  send(message);
}

Result<void> WorkerChannel::run(const char* name, const std::function<Result<void>()>& work) {
  const auto begin = Clock::now();
  failed_ = name;
  if (faults_.dies_before(name)) ask_to_die();
  Result<void> done =
      faults_.fail_at == name ? Result<void>(errno_error("failure asked for", EIO)) : work();
  if (!done) return done;
  failed_.clear();
  tell(name, std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin));
  if (faults_.dies_after(name)) ask_to_die();
  return {};
}

Result<void> WorkerChannel::ask(WorkerMessage::Kind what, pid_t pid) {
  WorkerMessage question = message_of(what, "");
  question.pid = pid;
  send(question);
  ATOLL_TRY_ASSIGN(std::optional<WorkerMessage> answer, receive_message(socket_));
  if (!answer) return make_error(Errc::aborted, "the warden is gone");
  if (answer->code != 0) return to_error(*answer);
  return {};
}

void WorkerChannel::release() { send(message_of(WorkerMessage::released, "")); }

void WorkerChannel::end(const Result<WorkerResult>& result) {
  WorkerMessage message = message_of(WorkerMessage::done, failed_);
  if (result) {
    message.memory_bytes = result->memory_bytes;
    message.disk_bytes = result->disk_bytes;
    message.pid = result->pid;
    wire::to_field_cut(message.message, result->text);
  } else {
    fill(message, result.error());
  }
  send(message);
  sys::exit_now(0);
}

// ---- the warden's side

Result<Worker> Worker::start(Life life, std::vector<int> keep, const Faults& faults, Body body) {
  ATOLL_TRY_ASSIGN(auto ends, sys::seqpacket_pair());
  // A worker that is told to give up before it can listen to that does so when it can.
  ATOLL_TRY_ASSIGN(sys::BlockedSignal blocked, sys::BlockedSignal::block(SIGTERM));
  ATOLL_TRY_ASSIGN(sys::Cloned cloned, sys::clone_process(CLONE_NEWNS, nullptr));
  if (cloned.pid == 0) {
    keep.insert(keep.end(), {0, 1, 2, ends.second.get()});
    WorkerChannel channel(std::move(ends.second), faults);
    auto ready = [&]() -> Result<void> {
      if (life == Life::with_warden) {
        ATOLL_TRY(sys::set_parent_death(sys::WithParent::die));
      }
      ATOLL_TRY(sys::close_all_except(std::move(keep)));
      return sys::make_all_private();
    }();
    channel.end(ready ? body(channel) : Result<WorkerResult>(std::move(ready).error()));
  }
  Worker worker;
  worker.process_ = sys::Child(cloned.pid, std::move(cloned.pidfd));
  worker.channel_ = std::move(ends.first);
  return worker;
}

Result<std::optional<WorkerMessage>> Worker::receive() { return receive_message(channel_); }

Result<void> Worker::answer(const Result<void>& outcome) {
  WorkerMessage message = message_of(WorkerMessage::done, "");
  if (!outcome) fill(message, outcome.error());
  return sys::send_datagram(channel_, std::as_bytes(std::span(&message, 1)), {}, sys::Wait::yes);
}

}  // namespace atl::jail
