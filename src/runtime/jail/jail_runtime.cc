#include "runtime/jail/jail_runtime.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/log.h"
#include "runtime/jail/protocol.h"
#include "sys/datagram.h"
#include "sys/files.h"
#include "sys/process.h"

namespace atl::runtime {
namespace {

namespace asio = net::asio;
namespace wire = jail::wire;
using wire::Op;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kMaxOutstanding = 4096;
constexpr std::chrono::seconds kHelloDeadline{30};
constexpr std::chrono::seconds kExitDeadline{2};
// Above the warden's own deadlines, so that its answers come first.
constexpr std::chrono::seconds kPrepareTimeout{120};
constexpr std::chrono::seconds kMemoryTimeout{960};

Error to_error(const wire::Reply& reply) {
  std::string message(wire::from_field(reply.message));
  const std::string_view step = wire::from_field(reply.step);
  if (!step.empty()) message = std::string(step) + ": " + message;
  return Error{Errc(reply.code), reply.sys_errno, std::move(message)};
}

template <class Message>
Result<Message> read_as(std::span<const std::byte> bytes) {
  Message message;
  if (bytes.size() != sizeof(message)) {
    return make_error(Errc::internal, "the warden's answer has the wrong size");
  }
  std::memcpy(&message, bytes.data(), sizeof(message));
  return message;
}

Result<wire::IdRequest> id_request(Op op, const SandboxId& id) {
  wire::IdRequest request;
  request.header.op = std::uint16_t(op);
  if (!wire::to_field(request.id, id.str()))
    return make_error(Errc::invalid_argument, "id too long");
  return request;
}

Result<wire::CreateRequest> create_request(const SandboxSpec& spec) {
  wire::CreateRequest request;
  request.header.op = std::uint16_t(Op::create);
  const std::string boot_id = spec.boot_id.empty() ? random_uuid4() : spec.boot_id;
  if (!wire::to_field(request.id, spec.id.str()))
    return make_error(Errc::invalid_argument, "id too long");
  if (!wire::to_field(request.template_id, spec.template_id)) {
    return make_error(Errc::invalid_argument, "template id too long");
  }
  if (!wire::to_field(request.hostname, spec.hostname)) {
    return make_error(Errc::invalid_argument, "hostname too long");
  }
  if (!wire::to_field(request.boot_id, boot_id))
    return make_error(Errc::invalid_argument, "boot id too long");
  request.kept_disk = spec.disk == Disk::kept ? 1 : 0;
  request.memory = std::uint8_t(spec.memory);
  request.replace = spec.replace ? 1 : 0;
  if (!wire::to_field(request.snapshot, spec.snapshot))
    return make_error(Errc::invalid_argument, "snapshot id too long");
  request.memory_bytes = spec.limits.memory_bytes;
  request.disk_bytes =
      (spec.limits.disk_bytes + wire::kDiskUnit - 1) / wire::kDiskUnit * wire::kDiskUnit;
  request.cpu_millis = spec.limits.cpu_millis;
  request.pids = spec.limits.pids;
  ATOLL_TRY_ASSIGN(request.network, wire::to_fields(spec.network));
  return request;
}

Result<void> say_hello(const sys::UniqueFd& socket, gid_t server_gid) {
  wire::HelloRequest hello;
  hello.header.op = std::uint16_t(Op::hello);
  hello.server_gid = server_gid;
  ATOLL_TRY(sys::send_datagram(socket, wire::bytes_of(hello), {}, sys::Wait::yes));
  ATOLL_TRY_ASSIGN(bool answered, sys::wait_readable(socket, kHelloDeadline));
  if (!answered) return make_error(Errc::deadline_exceeded, "no answer");
  ATOLL_TRY_ASSIGN(sys::Datagram answer,
                   sys::receive_datagram(socket, wire::kMaxDatagram, 0, sys::Wait::yes));
  if (answer.bytes.empty()) return make_error(Errc::unavailable, "it ended at once");
  ATOLL_TRY_ASSIGN(wire::Reply reply, read_as<wire::Reply>(answer.bytes));
  if (reply.code != 0) return to_error(reply);
  return {};
}

}  // namespace

// Everything below is touched on the strand only.
class JailRuntime::Client : public std::enable_shared_from_this<Client> {
 public:
  using Strand = asio::strand<asio::io_context::executor_type>;

  struct Answer {
    std::vector<std::byte> bytes;
    std::vector<sys::UniqueFd> fds;
  };

  Client(asio::io_context& io, sys::UniqueFd socket, sys::Child warden,
         std::chrono::milliseconds timeout)
      : strand_(asio::make_strand(io)),
        socket_(std::move(socket)),
        watch_(strand_, sys::duplicate(socket_).release()),
        write_watch_(strand_, sys::duplicate(socket_).release()),
        warden_(std::move(warden)),
        warden_pid_(warden_.pid()),
        timeout_(timeout) {}

  ~Client() {
    watch_.close();
    write_watch_.close();
    socket_.reset();
    // It ends by itself when it sees the socket closed; a wait that fails leaves it to do so later.
    auto ended = warden_.wait(kExitDeadline);
    if (!ended || !*ended) warden_.release();
  }

  Strand& strand() { return strand_; }
  pid_t warden_pid() const { return warden_pid_; }

  void start() { asio::co_spawn(strand_, receive_loop(shared_from_this()), asio::detached); }
  // Ends the receive loop, which holds a reference to this.
  void stop() {
    asio::post(strand_, [self = shared_from_this()] {
      self->lost_handler_ = nullptr;
      self->watch_.close();
    });
  }

  std::function<void(ExitNotice)> exit_handler_;
  std::function<void()> lost_handler_;
  std::unordered_map<SandboxId, std::shared_ptr<sys::UniqueFd>> control_dirs_;

  // Preconditions: on the strand.
  template <class Request>
  net::Task<Result<Answer>> ask(Request request) {
    auto asking = ask(std::move(request), timeout_);
    co_return co_await std::move(asking);
  }
  template <class Request>
  net::Task<Result<Answer>> ask(Request request, std::chrono::milliseconds at_most) {
    if (lost_) co_return make_error(Errc::unavailable, "the warden is gone");
    if (waiting_.size() >= kMaxOutstanding)
      co_return make_error(Errc::resource_exhausted, "too many requests to the warden");
    request.header.sequence = ++last_sequence_;
    auto entry = std::make_shared<Waiting>(strand_);
    entry->op = Op(request.header.op);
    if constexpr (std::is_same_v<Request, wire::CreateRequest>) {
      entry->id = SandboxId::parse(wire::from_field(request.id));
      entry->undo = request.memory == std::uint8_t(Memory::kept) ? Op::freeze
                    : request.kept_disk != 0                     ? Op::kill
                                                                 : Op::destroy;
    }
    waiting_.emplace(request.header.sequence, entry);
    const auto bytes = wire::bytes_of(request);
    outgoing_.emplace_back(bytes.begin(), bytes.end());
    flush();
    entry->timer.expires_after(at_most);
    auto [ec] = co_await entry->timer.async_wait(kUse);
    (void)ec;  // cancelled by the answer, by a lost connection, or past its time
    if (entry->answer) co_return std::move(*entry->answer);
    if (lost_) co_return make_error(Errc::unavailable, "the warden is gone");
    // Somebody must still take care of what a late answer brings.
    entry->abandoned = true;
    co_return make_error(Errc::deadline_exceeded, "the warden did not answer in time");
  }

 private:
  struct Waiting {
    explicit Waiting(const Strand& strand) : timer(strand) {}
    asio::steady_timer timer;
    Op op{};
    std::optional<SandboxId> id;
    // What takes a create back: a reboot must not cost the disk, a resume not the memory.
    Op undo{};
    std::optional<Answer> answer;
    bool abandoned = false;
  };

  static net::Task<void> receive_loop(std::shared_ptr<Client> self) {
    for (;;) {
      auto [ec] = co_await self->watch_.async_wait(asio::posix::stream_descriptor::wait_read, kUse);
      if (ec) break;
      if (!self->receive_all()) break;
    }
    self->lose();
  }

  // False: the connection is lost.
  bool receive_all() {
    for (;;) {
      auto message =
          sys::receive_datagram(socket_, wire::kMaxDatagram, wire::kMaxReplyFds, sys::Wait::no);
      if (!message && message.error().sys_errno == EAGAIN) return true;
      if (!message || message->bytes.size() < sizeof(wire::Header)) return false;
      dispatch({std::move(message->bytes), std::move(message->fds)});
    }
  }

  void dispatch(Answer answer) {
    wire::Header header;
    std::memcpy(&header, answer.bytes.data(), sizeof(header));
    if (Op(header.op) == Op::exited) return on_exited(answer);
    const auto found = waiting_.find(header.sequence);
    if (found == waiting_.end()) {
      log::warn("the warden answered what was not asked", {{"op", std::to_string(header.op)}});
      return;
    }
    std::shared_ptr<Waiting> entry = found->second;
    waiting_.erase(found);
    if (entry->abandoned) return clean_up_after(*entry, answer);
    entry->answer = std::move(answer);
    entry->timer.cancel();
  }

  // A sandbox that nobody waits for any more.
  void clean_up_after(const Waiting& entry, const Answer& answer) {
    if (entry.op != Op::create || !entry.id) return;
    auto reply = read_as<wire::CreateReply>(answer.bytes);
    if (!reply || reply->reply.code != 0) return;
    log::warn("ending a sandbox that was made too late", {{"sandbox", entry.id->str()}});
    asio::co_spawn(strand_, end_late(shared_from_this(), entry.undo, *entry.id), asio::detached);
  }

  static net::Task<void> end_late(std::shared_ptr<Client> self, Op undo, SandboxId id) {
    auto request = id_request(undo, id);
    if (!request) co_return;
    auto answer = co_await self->ask(*request);
    if (!answer)
      log::error("cannot end it", {{"sandbox", id.str()}, {"error", answer.error().message}});
  }

  void on_exited(const Answer& answer) {
    auto event = read_as<wire::ExitedEvent>(answer.bytes);
    if (!event) return;
    auto id = SandboxId::parse(wire::from_field(event->id));
    if (!id) return;
    control_dirs_.erase(*id);
    if (exit_handler_) exit_handler_(ExitNotice{*id, event->signaled != 0, event->status});
  }

  // Sends what the socket takes; the rest follows when it is writable again.
  void flush() {
    while (!outgoing_.empty()) {
      auto sent = sys::send_datagram(socket_, outgoing_.front(), {}, sys::Wait::no);
      if (!sent && sent.error().sys_errno == EAGAIN) {
        if (!flushing_) {
          flushing_ = true;
          write_watch_.async_wait(asio::posix::stream_descriptor::wait_write,
                                  [self = shared_from_this()](boost::system::error_code ec) {
                                    self->flushing_ = false;
                                    if (!ec) self->flush();
                                  });
        }
        return;
      }
      // Anything else is seen by the receive loop as the end of the connection.
      outgoing_.pop_front();
    }
  }

  void lose() {
    lost_ = true;
    outgoing_.clear();
    auto waiting = std::exchange(waiting_, {});
    for (auto& [sequence, entry] : waiting) entry->timer.cancel();
    write_watch_.close();
    if (auto handler = std::exchange(lost_handler_, nullptr)) handler();
  }

  Strand strand_;
  sys::UniqueFd socket_;
  asio::posix::stream_descriptor watch_;
  asio::posix::stream_descriptor write_watch_;
  sys::Child warden_;
  const pid_t warden_pid_;
  const std::chrono::milliseconds timeout_;
  bool lost_ = false;
  bool flushing_ = false;
  std::uint64_t last_sequence_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Waiting>> waiting_;
  std::deque<std::vector<std::byte>> outgoing_;
};

namespace {

using ClientPtr = std::shared_ptr<JailRuntime::Client>;

// Runs on the client's strand, whatever executor the caller has. A Result has no default value for
// Asio to hold, hence the slot.
template <class T>
net::Task<void> store(net::Task<Result<T>> task, std::shared_ptr<std::optional<Result<T>>> into) {
  into->emplace(co_await std::move(task));
}

template <class T>
net::Task<Result<T>> on_strand(ClientPtr client, net::Task<Result<T>> task) {
  auto result = std::make_shared<std::optional<Result<T>>>();
  auto work = store(std::move(task), result);
  co_await asio::co_spawn(client->strand(), std::move(work), asio::use_awaitable);
  co_return std::move(**result);
}

// What takes as long as its memory is large; kill and destroy may first have to end such a thing.
bool is_slow(Op op) { return op == Op::cancel_dump || op == Op::kill || op == Op::destroy; }

net::Task<Result<void>> do_simple(ClientPtr client, Op op, SandboxId id) {
  ATOLL_CO_TRY_ASSIGN(wire::IdRequest request, id_request(op, id));
  if (op == Op::destroy || op == Op::kill) client->control_dirs_.erase(id);
  auto asking = is_slow(op) ? client->ask(request, kMemoryTimeout) : client->ask(request);
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await std::move(asking));
  // Somebody may have asked for it meanwhile; the next boot has another one.
  if (op == Op::destroy || op == Op::kill) client->control_dirs_.erase(id);
  ATOLL_CO_TRY_ASSIGN(wire::Reply reply, read_as<wire::Reply>(answer.bytes));
  if (reply.code != 0) co_return to_error(reply);
  co_return Result<void>();
}

template <class Message>
std::vector<StepTime> steps_of(const Message& reply) {
  std::vector<StepTime> steps;
  for (std::size_t i = 0; i < std::min<std::size_t>(reply.step_count, wire::kMaxSteps); ++i) {
    steps.push_back({std::string(wire::from_field(reply.steps[i].name)),
                     std::chrono::microseconds(reply.steps[i].micros)});
  }
  return steps;
}

net::Task<Result<Created>> do_create(ClientPtr client, SandboxSpec spec) {
  client->control_dirs_.erase(spec.id);
  ATOLL_CO_TRY_ASSIGN(wire::CreateRequest request, create_request(spec));
  auto asking =
      spec.memory == Memory::none ? client->ask(request) : client->ask(request, kMemoryTimeout);
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await std::move(asking));
  ATOLL_CO_TRY_ASSIGN(wire::CreateReply reply, read_as<wire::CreateReply>(answer.bytes));
  if (reply.reply.code != 0) co_return to_error(reply.reply);
  co_return Created{steps_of(reply), Ipv4{reply.address}};
}

net::Task<Result<void>> do_set_network(ClientPtr client, SandboxId id, NetworkPolicy policy) {
  wire::SetNetworkRequest request;
  request.header.op = std::uint16_t(Op::set_network);
  if (!wire::to_field(request.id, id.str()))
    co_return make_error(Errc::invalid_argument, "id too long");
  ATOLL_CO_TRY_ASSIGN(request.network, wire::to_fields(policy));
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await client->ask(request));
  ATOLL_CO_TRY_ASSIGN(wire::Reply reply, read_as<wire::Reply>(answer.bytes));
  if (reply.code != 0) co_return to_error(reply);
  co_return Result<void>();
}

net::Task<Result<void>> do_set_memory(ClientPtr client, SandboxId id, std::uint64_t bytes) {
  wire::SetMemoryRequest request;
  request.header.op = std::uint16_t(Op::set_memory);
  if (!wire::to_field(request.id, id.str()))
    co_return make_error(Errc::invalid_argument, "id too long");
  request.memory_bytes = bytes;
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await client->ask(request));
  ATOLL_CO_TRY_ASSIGN(wire::Reply reply, read_as<wire::Reply>(answer.bytes));
  if (reply.code != 0) co_return to_error(reply);
  co_return Result<void>();
}

net::Task<Result<EgressSockets>> do_egress_sockets(ClientPtr client) {
  wire::EgressSocketsRequest request;
  request.header.op = std::uint16_t(Op::egress_sockets);
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await client->ask(request));
  ATOLL_CO_TRY_ASSIGN(wire::Reply reply, read_as<wire::Reply>(answer.bytes));
  if (reply.code != 0) co_return to_error(reply);
  if (answer.fds.empty()) co_return EgressSockets{};  // sandboxes have no network
  if (answer.fds.size() != 3) co_return make_error(Errc::internal, "the warden sent no sockets");
  co_return EgressSockets{answer.fds[0].release(), answer.fds[1].release(),
                          answer.fds[2].release()};
}

Condition condition_of(std::uint8_t state) {
  switch (wire::SandboxState(state)) {
    case wire::SandboxState::running:
      return Condition::running;
    case wire::SandboxState::frozen:
      return Condition::frozen;
    case wire::SandboxState::dead:
      return Condition::dead;
    case wire::SandboxState::dumped:
      return Condition::dumped;
    case wire::SandboxState::leftover:
      break;
  }
  return Condition::leftover;
}

net::Task<Result<std::vector<Listed>>> do_list(ClientPtr client) {
  std::vector<Listed> ids;
  wire::ListRequest request;
  request.header.op = std::uint16_t(Op::list);
  for (;;) {
    ATOLL_CO_TRY_ASSIGN(auto answer, co_await client->ask(request));
    ATOLL_CO_TRY_ASSIGN(wire::ListReply reply, read_as<wire::ListReply>(answer.bytes));
    if (reply.reply.code != 0) co_return to_error(reply.reply);
    if (reply.count > wire::kListPage)
      co_return make_error(Errc::internal, "the warden's list is broken");
    for (std::size_t i = 0; i < reply.count; ++i) {
      auto id = SandboxId::parse(wire::from_field(reply.entries[i].id));
      if (id)
        ids.push_back(
            Listed{*id, condition_of(reply.entries[i].state), Ipv4{reply.entries[i].address}});
    }
    if (reply.more == 0 || reply.count == 0) co_return ids;
    std::memcpy(request.after, reply.entries[reply.count - 1].id, sizeof(request.after));
  }
}

net::Task<Result<Usage>> do_usage(ClientPtr client, SandboxId id) {
  ATOLL_CO_TRY_ASSIGN(wire::IdRequest request, id_request(Op::stats, id));
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await client->ask(request));
  ATOLL_CO_TRY_ASSIGN(wire::StatsReply reply, read_as<wire::StatsReply>(answer.bytes));
  if (reply.reply.code != 0) co_return to_error(reply.reply);
  Usage usage;
  usage.memory_bytes = reply.memory_bytes;
  usage.memory_peak_bytes = reply.memory_peak_bytes;
  usage.memory_cache_bytes = reply.memory_cache_bytes;
  usage.disk_bytes = reply.disk_bytes;
  usage.disk_total_bytes = reply.disk_total_bytes;
  usage.cpu = std::chrono::microseconds(reply.cpu_micros);
  usage.pids = reply.pids;
  usage.oom_kills = reply.oom_kills;
  co_return usage;
}

net::Task<Result<void>> do_prepare(ClientPtr client, std::string template_id) {
  wire::TemplateRequest request;
  request.header.op = std::uint16_t(Op::prepare);
  if (!wire::to_field(request.template_id, template_id))
    co_return make_error(Errc::invalid_argument, "template id too long");
  auto asking = client->ask(request, kPrepareTimeout);
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await std::move(asking));
  ATOLL_CO_TRY_ASSIGN(wire::Reply reply, read_as<wire::Reply>(answer.bytes));
  if (reply.code != 0) co_return to_error(reply);
  co_return Result<void>();
}

net::Task<Result<void>> do_warm(ClientPtr client, SandboxId id) {
  ATOLL_CO_TRY_ASSIGN(wire::IdRequest request, id_request(Op::warm, id));
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await client->ask(request));
  ATOLL_CO_TRY_ASSIGN(wire::WarmReply reply, read_as<wire::WarmReply>(answer.bytes));
  if (reply.reply.code != 0) co_return to_error(reply.reply);
  log::debug("warmed", {{"sandbox", id.str()},
                        {"fork_micros", std::to_string(reply.fork_micros)},
                        {"enter_micros", std::to_string(reply.enter_micros)}});
  co_return Result<void>();
}

net::Task<Result<MemorySupport>> do_memory_support(ClientPtr client) {
  wire::PlainRequest request;
  request.header.op = std::uint16_t(Op::memory_support);
  auto asking = client->ask(request, kPrepareTimeout);
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await std::move(asking));
  ATOLL_CO_TRY_ASSIGN(wire::MemorySupportReply reply,
                      read_as<wire::MemorySupportReply>(answer.bytes));
  if (reply.reply.code != 0) co_return to_error(reply.reply);
  co_return MemorySupport{reply.durable != 0, std::string(wire::from_field(reply.reason)),
                          std::string(wire::from_field(reply.version))};
}

template <class Request>
net::Task<Result<Written>> do_write(ClientPtr client, Request request) {
  auto asking = client->ask(request, kMemoryTimeout);
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await std::move(asking));
  ATOLL_CO_TRY_ASSIGN(wire::WrittenReply reply, read_as<wire::WrittenReply>(answer.bytes));
  if (reply.reply.code != 0) co_return to_error(reply.reply);
  co_return Written{reply.memory_bytes, reply.disk_bytes, steps_of(reply)};
}

net::Task<Result<Written>> do_dump(ClientPtr client, SandboxId id) {
  ATOLL_CO_TRY_ASSIGN(wire::IdRequest request, id_request(Op::dump, id));
  auto writing = do_write(client, request);
  auto written = co_await std::move(writing);
  // Its socket goes with its mounts; the next one that runs has another.
  if (written) client->control_dirs_.erase(id);
  co_return written;
}

net::Task<Result<Written>> do_snapshot(ClientPtr client, SandboxId id, SnapshotId snapshot,
                                       bool disk_only) {
  wire::SnapshotRequest request;
  request.header.op = std::uint16_t(Op::snapshot);
  if (!wire::to_field(request.id, id.str()) || !wire::to_field(request.snapshot, snapshot))
    co_return make_error(Errc::invalid_argument, "id too long");
  request.disk_only = disk_only ? 1 : 0;
  auto writing = do_write(client, request);
  co_return co_await std::move(writing);
}

net::Task<Result<void>> do_remove_snapshot(ClientPtr client, SnapshotId snapshot) {
  wire::SnapshotIdRequest request;
  request.header.op = std::uint16_t(Op::remove_snapshot);
  if (!wire::to_field(request.snapshot, snapshot))
    co_return make_error(Errc::invalid_argument, "snapshot id too long");
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await client->ask(request));
  ATOLL_CO_TRY_ASSIGN(wire::Reply reply, read_as<wire::Reply>(answer.bytes));
  if (reply.code != 0) co_return to_error(reply);
  co_return Result<void>();
}

ListedSnapshot to_listed(const wire::SnapshotEntry& entry) {
  ListedSnapshot listed{std::string(wire::from_field(entry.id)),
                        entry.whole != 0,
                        {},
                        entry.memory_bytes,
                        entry.disk_bytes};
  for (std::size_t i = 0; i < std::min<std::size_t>(entry.layer_count, wire::kMaxLayers); ++i)
    listed.layers.emplace_back(wire::from_field(entry.layers[i]));
  return listed;
}

net::Task<Result<std::vector<ListedSnapshot>>> do_list_snapshots(ClientPtr client) {
  std::vector<ListedSnapshot> snapshots;
  wire::ListRequest request;
  request.header.op = std::uint16_t(Op::list_snapshots);
  for (;;) {
    ATOLL_CO_TRY_ASSIGN(auto answer, co_await client->ask(request));
    ATOLL_CO_TRY_ASSIGN(wire::ListSnapshotsReply reply,
                        read_as<wire::ListSnapshotsReply>(answer.bytes));
    if (reply.reply.code != 0) co_return to_error(reply.reply);
    if (reply.count > wire::kSnapshotPage)
      co_return make_error(Errc::internal, "the warden's list is broken");
    for (std::size_t i = 0; i < reply.count; ++i) snapshots.push_back(to_listed(reply.entries[i]));
    if (reply.more == 0 || reply.count == 0) co_return snapshots;
    if (!wire::to_field(request.after, snapshots.back().id))
      co_return make_error(Errc::internal, "the warden's list is broken");
  }
}

net::Task<Result<std::shared_ptr<sys::UniqueFd>>> control_dir(ClientPtr client, SandboxId id) {
  const auto known = client->control_dirs_.find(id);
  if (known != client->control_dirs_.end()) co_return known->second;
  ATOLL_CO_TRY_ASSIGN(wire::IdRequest request, id_request(Op::agent_dir, id));
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await client->ask(request));
  ATOLL_CO_TRY_ASSIGN(wire::Reply reply, read_as<wire::Reply>(answer.bytes));
  if (reply.code != 0) co_return to_error(reply);
  if (answer.fds.size() != 1) co_return make_error(Errc::internal, "the warden sent no descriptor");
  auto fd = std::make_shared<sys::UniqueFd>(std::move(answer.fds.front()));
  client->control_dirs_.insert_or_assign(id, fd);
  co_return fd;
}

}  // namespace

Result<std::unique_ptr<JailRuntime>> JailRuntime::start(asio::io_context& io,
                                                        WardenOptions options) {
  ATOLL_TRY_ASSIGN(auto ends, sys::seqpacket_pair());
  sys::SpawnOptions spawn;
  spawn.path = options.warden_path;
  spawn.argv = {"atoll-warden", "--control-fd",   "3",       "--home",          options.home,
                "--instance",   options.instance, "--agent", options.agent_path};
  if (!options.templates.empty())
    spawn.argv.insert(spawn.argv.end(), {"--templates", options.templates});
  if (!options.tools.empty()) spawn.argv.insert(spawn.argv.end(), {"--tools", options.tools});
  if (!options.kernels_path.empty())
    spawn.argv.insert(spawn.argv.end(), {"--kernels", options.kernels_path});
  spawn.argv.insert(spawn.argv.end(), options.extra_args.begin(), options.extra_args.end());
  spawn.fds = {{ends.second.get(), 3}};
  auto warden = sys::spawn(spawn);
  if (!warden) return std::move(warden).error().with("start the warden");
  ends.second.reset();
  auto greeted = say_hello(ends.first, options.server_gid);
  if (!greeted) return std::move(greeted).error().with("atoll-warden");
  auto client = std::make_shared<Client>(io, std::move(ends.first), std::move(*warden),
                                         options.request_timeout);
  client->start();
  return std::unique_ptr<JailRuntime>(new JailRuntime(std::move(client)));
}

JailRuntime::JailRuntime(std::shared_ptr<Client> client) : client_(std::move(client)) {}
JailRuntime::~JailRuntime() { client_->stop(); }

net::Task<Result<Created>> JailRuntime::create(SandboxSpec spec) {
  return on_strand(client_, do_create(client_, std::move(spec)));
}
net::Task<Result<void>> JailRuntime::destroy(SandboxId id) {
  return on_strand(client_, do_simple(client_, Op::destroy, std::move(id)));
}
net::Task<Result<void>> JailRuntime::freeze(SandboxId id) {
  return on_strand(client_, do_simple(client_, Op::freeze, std::move(id)));
}
net::Task<Result<void>> JailRuntime::thaw(SandboxId id) {
  return on_strand(client_, do_simple(client_, Op::thaw, std::move(id)));
}
net::Task<Result<void>> JailRuntime::kill(SandboxId id) {
  return on_strand(client_, do_simple(client_, Op::kill, std::move(id)));
}
net::Task<Result<void>> JailRuntime::set_memory(SandboxId id, std::uint64_t bytes) {
  return on_strand(client_, do_set_memory(client_, std::move(id), bytes));
}

net::Task<Result<void>> JailRuntime::set_network(SandboxId id, NetworkPolicy policy) {
  return on_strand(client_, do_set_network(client_, std::move(id), std::move(policy)));
}
net::Task<Result<EgressSockets>> JailRuntime::egress_sockets() {
  return on_strand(client_, do_egress_sockets(client_));
}
net::Task<Result<void>> JailRuntime::prepare(std::string template_id) {
  return on_strand(client_, do_prepare(client_, std::move(template_id)));
}
net::Task<Result<void>> JailRuntime::warm(SandboxId id) {
  return on_strand(client_, do_warm(client_, std::move(id)));
}
net::Task<Result<MemorySupport>> JailRuntime::memory_support() {
  return on_strand(client_, do_memory_support(client_));
}
net::Task<Result<Written>> JailRuntime::dump(SandboxId id) {
  return on_strand(client_, do_dump(client_, std::move(id)));
}
net::Task<Result<void>> JailRuntime::cancel_dump(SandboxId id) {
  return on_strand(client_, do_simple(client_, Op::cancel_dump, std::move(id)));
}
net::Task<Result<Written>> JailRuntime::snapshot(SandboxId id, SnapshotId snapshot) {
  return on_strand(client_, do_snapshot(client_, std::move(id), std::move(snapshot), false));
}
net::Task<Result<Written>> JailRuntime::snapshot_disk(SandboxId id, SnapshotId snapshot) {
  return on_strand(client_, do_snapshot(client_, std::move(id), std::move(snapshot), true));
}
net::Task<Result<void>> JailRuntime::remove_snapshot(SnapshotId snapshot) {
  return on_strand(client_, do_remove_snapshot(client_, std::move(snapshot)));
}
net::Task<Result<std::vector<ListedSnapshot>>> JailRuntime::list_snapshots() {
  return on_strand(client_, do_list_snapshots(client_));
}
net::Task<Result<std::vector<Listed>>> JailRuntime::list() {
  return on_strand(client_, do_list(client_));
}
net::Task<Result<Usage>> JailRuntime::usage(SandboxId id) {
  return on_strand(client_, do_usage(client_, std::move(id)));
}

net::Task<Result<std::unique_ptr<net::Stream>>> JailRuntime::connect_agent(SandboxId id) {
  auto find = on_strand(client_, control_dir(client_, id));
  ATOLL_CO_TRY_ASSIGN(std::shared_ptr<sys::UniqueFd> dir, co_await std::move(find));
  // Not through links, and a socket at that. The path of a socket address has 107 bytes and follows
  // links; the name of an open descriptor has neither problem.
  ATOLL_CO_TRY_ASSIGN(sys::UniqueFd socket,
                      sys::open_beneath(*dir, "agent.sock", O_PATH | O_NOFOLLOW));
  ATOLL_CO_TRY_ASSIGN(struct stat info, sys::stat_of(socket));
  if (!S_ISSOCK(info.st_mode))
    co_return make_error(Errc::unavailable, "the agent's socket is not a socket");
  auto connect = net::connect_unix("/proc/self/fd/" + std::to_string(socket.get()));
  co_return co_await std::move(connect);
}

void JailRuntime::on_exit(std::function<void(ExitNotice)> handler) {
  asio::post(client_->strand(), [client = client_, handler = std::move(handler)]() mutable {
    client->exit_handler_ = std::move(handler);
  });
}

void JailRuntime::on_lost(std::function<void()> handler) {
  asio::post(client_->strand(), [client = client_, handler = std::move(handler)]() mutable {
    client->lost_handler_ = std::move(handler);
  });
}

pid_t JailRuntime::warden_pid() const { return client_->warden_pid(); }

}  // namespace atl::runtime
