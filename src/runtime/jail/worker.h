// Worker: a child of the warden that does one thing which takes long, in plain blocking code: a
// dump, a snapshot, a restore. The event loop never waits for it; it reads the worker's channel.
//
// Theory of operation. The worker is a fork of the warden in a mount namespace of its own, with
// only the descriptors it was given. Over a SEQPACKET pair it tells the steps it has done, asks for
// what only the warden can do (and waits for the answer), and ends with its result. The end of the
// channel without a result is a worker that died. One that dumps lives on without its warden: CRIU
// must not be stopped half-way. One that restores dies with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "runtime/jail/faults.h"
#include "runtime/jail/protocol.h"
#include "sys/fd.h"
#include "sys/process.h"

namespace atl::jail {

struct WorkerMessage {
  enum Kind : std::uint32_t {
    step = 1,  // `name` took `micros`
    connect,   // a restored sandbox has its network namespace, process `pid`: connect it
    resume,    // everything is restored: the next thing is that process `pid` runs
    released,  // the source of a snapshot may run on; the rest is done without it
    done,      // the result: code 0 or an error, `name` the step that failed
    die,       // tests: the warden is to end itself
  };
  std::uint32_t kind = 0;
  std::int32_t code = 0;  // Errc
  std::int32_t sys_errno = 0;
  std::int32_t pid = 0;
  std::uint64_t micros = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  char name[wire::kStepNameSize] = {};
  std::uint8_t reserved[4] = {};
  char message[wire::kMessageSize] = {};
};
static_assert(std::has_unique_object_representations_v<WorkerMessage>);

struct WorkerResult {
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  pid_t pid = 0;
  std::string text;  // for people, in the place of an error's message
};

// The worker's end of the channel.
class WorkerChannel {
 public:
  WorkerChannel(sys::UniqueFd socket, const Faults& faults)
      : socket_(std::move(socket)), faults_(faults) {}

  // Does one step: fails or has the warden die where tests say so, and tells how long it took.
  Result<void> run(const char* name, const std::function<Result<void>()>& work);
  // The same for what was timed elsewhere.
  void tell(std::string_view name, std::chrono::microseconds took);
  // Waits for the answer. `aborted` if the warden is gone.
  Result<void> ask(WorkerMessage::Kind what, pid_t pid);
  void release();

 private:
  friend class Worker;
  void send(const WorkerMessage& message);
  void ask_to_die();
  [[noreturn]] void end(const Result<WorkerResult>& result);

  sys::UniqueFd socket_;
  const Faults& faults_;
  std::string failed_;
};

// The warden's end. Dropping it kills the worker, unless it was let go.
class Worker {
 public:
  enum class Life : std::uint8_t { with_warden, on_its_own };
  using Body = std::function<Result<WorkerResult>(WorkerChannel&)>;

  Worker() = default;
  // Forks; `body` runs in the child, which has the descriptors `keep` and the standard ones.
  static Result<Worker> start(Life life, std::vector<int> keep, const Faults& faults, Body body);

  // Readable when there is a message.
  const sys::UniqueFd& channel() const { return channel_; }
  // nullopt: it died without a result.
  Result<std::optional<WorkerMessage>> receive();
  // Answers a question.
  Result<void> answer(const Result<void>& outcome);
  // Asks it to give up (SIGTERM, which is blocked in a worker that has not taken care of it).
  Result<void> cancel() const { return process_.signal(15); }
  sys::Child& process() { return process_; }
  pid_t pid() const { return process_.pid(); }

 private:
  sys::Child process_;
  sys::UniqueFd channel_;
};

Error to_error(const WorkerMessage& message);

}  // namespace atl::jail
