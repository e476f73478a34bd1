// The language between the server and atoll-warden: fixed-size messages over one SEQPACKET socket
// pair.
//
// Theory of operation. The server (unprivileged) sends requests, each with a sequence number of its
// own choice; the warden (root) answers every request with exactly one reply that carries the same
// number, in any order. Descriptors travel beside a reply as SCM_RIGHTS. `exited` is the one
// message that the warden sends unasked (sequence 0): the first process of a sandbox ended by
// itself. One datagram is one message; its size is that of the struct, to the byte. A datagram that
// is not a well-formed message of this version is a broken peer: the warden closes the connection.
//
// No field is a path. Sandboxes and templates are named by id and found below the home and instance
// that the warden was started with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/result.h"
#include "runtime/spec.h"

namespace atl::jail::wire {

inline constexpr std::uint32_t kMagic = 0x6c6c7461;
inline constexpr std::uint16_t kVersion = 5;

inline constexpr std::size_t kIdSize = 65;        // [a-z0-9_-]{1,64} and its NUL
inline constexpr std::size_t kHostnameSize = 64;  // one DNS label
inline constexpr std::size_t kBootIdSize = 37;    // a UUID in lower case
inline constexpr std::size_t kStepNameSize = 28;
inline constexpr std::size_t kSnapshotIdSize = 22;  // `s` + 20 of [a-z0-9] and its NUL
inline constexpr std::size_t kToolVersionSize = 32;
inline constexpr std::size_t kMaxLayers = 8;  // of a snapshot
inline constexpr std::size_t kMessageSize = 256;
inline constexpr std::size_t kMaxSteps = 64;
inline constexpr std::size_t kListPage = 32;
inline constexpr std::size_t kSnapshotPage = 16;
inline constexpr std::size_t kMaxDatagram = 4096;
inline constexpr std::size_t kMaxReplyFds = 3;

enum class Op : std::uint16_t {
  hello = 1,    // HelloRequest -> Reply: must come first
  create,       // CreateRequest -> CreateReply
  destroy,      // IdRequest -> Reply
  freeze,       // IdRequest -> Reply
  thaw,         // IdRequest -> Reply
  kill,         // IdRequest -> Reply: ends every process, keeps the disk (unmounted)
  list,         // ListRequest -> ListReply
  agent_dir,    // IdRequest -> Reply + one O_PATH descriptor of the directory that holds agent.sock
  stats,        // IdRequest -> StatsReply
  exited,       // ExitedEvent, from the warden
  set_network,  // SetNetworkRequest -> Reply: replaces the policy
  egress_sockets,  // EgressSocketsRequest -> Reply + three sockets: DNS by UDP and by TCP, proxy
  prepare,  // TemplateRequest -> Reply: starts the template's zygotes, answers when they can fork
  warm,     // IdRequest -> WarmReply: puts a nursery into a running sandbox
  memory_support,   // PlainRequest -> MemorySupportReply
  dump,             // IdRequest -> WrittenReply: of a frozen sandbox, which then is `dumped`
  cancel_dump,      // IdRequest -> Reply, when the dump (or snapshot) under way has ended
  snapshot,         // SnapshotRequest -> WrittenReply: of a frozen sandbox, which stays frozen
  remove_snapshot,  // SnapshotIdRequest -> Reply
  list_snapshots,   // ListRequest -> ListSnapshotsReply
  set_memory,       // SetMemoryRequest -> Reply: another limit for a running sandbox
};

struct Header {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t op = 0;
  std::uint64_t sequence = 0;
};

struct HelloRequest {
  Header header;
  std::uint32_t server_gid = 0;  // group that may connect to the agents' sockets
  std::uint32_t reserved = 0;
};

struct IdRequest {
  Header header;
  char id[kIdSize] = {};
  std::uint8_t reserved[7] = {};
};

struct TemplateRequest {
  Header header;
  char template_id[kIdSize] = {};
  std::uint8_t reserved[7] = {};
};

struct SnapshotRequest {
  Header header;
  char id[kIdSize] = {};  // of the sandbox
  char snapshot[kSnapshotIdSize] = {};
  std::uint8_t disk_only = 0;  // 1: without memory
};

struct SnapshotIdRequest {
  Header header;
  char snapshot[kSnapshotIdSize] = {};
  std::uint8_t reserved[2] = {};
};

// A block of addresses, in host order; bits beyond `bits` are zero.
struct NetworkBlock {
  std::uint32_t network = 0;
  std::uint8_t bits = 0;
  std::uint8_t reserved[3] = {};
};
// runtime::NetworkPolicy. Blocks behind the counts are zero.
struct NetworkFields {
  NetworkBlock allow[runtime::kMaxNetworkEntries];
  NetworkBlock deny[runtime::kMaxNetworkEntries];
  std::uint32_t allow_count = 0;
  std::uint32_t deny_count = 0;
  std::uint8_t intercept = 0;  // runtime::Intercept
  std::uint8_t reserved[7] = {};
};

struct CreateRequest {
  Header header;
  char id[kIdSize] = {};
  char template_id[kIdSize] = {};
  char hostname[kHostnameSize] = {};
  char boot_id[kBootIdSize] = {};
  std::uint8_t kept_disk = 0;  // 1: go on over the disk that `kill` or `dump` left
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;  // of a fresh disk
  std::uint32_t cpu_millis = 0;
  std::uint32_t pids = 0;
  std::uint8_t memory = 0;              // runtime::Memory
  char snapshot[kSnapshotIdSize] = {};  // empty, or where the disk begins and the memory is
  std::uint8_t replace = 0;             // 1: puts a sandbox of this id aside until the new one runs
  NetworkFields network;
};

struct SetNetworkRequest {
  Header header;
  char id[kIdSize] = {};
  std::uint8_t reserved[7] = {};
  NetworkFields network;
};

struct SetMemoryRequest {
  Header header;
  char id[kIdSize] = {};
  std::uint8_t reserved[7] = {};
  std::uint64_t memory_bytes = 0;
};

struct EgressSocketsRequest {
  Header header;
};

struct PlainRequest {
  Header header;
};

struct ListRequest {
  Header header;
  char after[kIdSize] = {};  // empty, or the last id of the page before
  std::uint8_t reserved[7] = {};
};

struct Reply {
  Header header;
  std::int32_t code = 0;  // an Errc, 0 = done
  std::int32_t sys_errno = 0;
  char step[kStepNameSize] = {};  // the step of the launch that failed, if one did
  std::uint8_t reserved[4] = {};
  char message[kMessageSize] = {};
};

struct StepEntry {
  char name[kStepNameSize] = {};
  std::uint32_t micros = 0;
};

struct CreateReply {
  Reply reply;
  std::uint32_t step_count = 0;
  std::uint32_t address = 0;  // of the sandbox, in host order; 0 = it has no network
  StepEntry steps[kMaxSteps];
};

enum class SandboxState : std::uint8_t { running = 1, frozen, dead, leftover, dumped };

struct ListEntry {
  char id[kIdSize] = {};
  std::uint8_t state = 0;  // SandboxState
  std::uint8_t reserved[2] = {};
  std::uint32_t address = 0;
};

struct ListReply {
  Reply reply;
  std::uint32_t count = 0;
  std::uint32_t more = 0;  // 1: ask again with `after` = the last id
  ListEntry entries[kListPage];
};

struct StatsReply {
  Reply reply;
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_peak_bytes = 0;
  std::uint64_t memory_cache_bytes = 0;
  std::uint64_t disk_bytes = 0;  // used
  std::uint64_t disk_total_bytes = 0;
  std::uint64_t cpu_micros = 0;
  std::uint64_t pids = 0;
  std::uint64_t oom_kills = 0;
};

struct WarmReply {
  Reply reply;
  std::uint32_t fork_micros = 0;   // of the zygote
  std::uint32_t enter_micros = 0;  // from the fork until nothing was left to give up
};

struct MemorySupportReply {
  Reply reply;
  std::uint8_t durable = 0;
  std::uint8_t reserved[7] = {};
  char version[kToolVersionSize] = {};
  char reason[kMessageSize] = {};
};

// What a dump or a snapshot wrote.
struct WrittenReply {
  Reply reply;
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::uint32_t step_count = 0;
  std::uint32_t reserved = 0;
  StepEntry steps[kMaxSteps];
};

struct SnapshotEntry {
  char id[kSnapshotIdSize] = {};
  std::uint8_t whole = 0;
  std::uint8_t layer_count = 0;
  char layers[kMaxLayers][kSnapshotIdSize] = {};  // the nearest first
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
};

struct ListSnapshotsReply {
  Reply reply;
  std::uint32_t count = 0;
  std::uint32_t more = 0;  // as of ListReply
  SnapshotEntry entries[kSnapshotPage];
};

struct ExitedEvent {
  Header header;
  char id[kIdSize] = {};
  std::uint8_t signaled = 0;  // 1: `status` is the signal's number, else the exit code
  std::uint8_t reserved[2] = {};
  std::int32_t status = 0;
};

// Every byte of a message is meaningful: no padding that could carry the sender's memory.
template <class T>
inline constexpr bool is_message =
    std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T> &&
    sizeof(T) <= kMaxDatagram;
static_assert(is_message<HelloRequest> && is_message<IdRequest> && is_message<CreateRequest> &&
              is_message<ListRequest>);
static_assert(is_message<SetNetworkRequest> && is_message<EgressSocketsRequest> &&
              is_message<SetMemoryRequest>);
static_assert(is_message<Reply> && is_message<CreateReply> && is_message<ListReply> &&
              is_message<StatsReply>);
static_assert(is_message<ExitedEvent> && is_message<TemplateRequest> && is_message<WarmReply>);
static_assert(is_message<SnapshotRequest> && is_message<SnapshotIdRequest> &&
              is_message<PlainRequest>);
static_assert(is_message<MemorySupportReply> && is_message<WrittenReply> &&
              is_message<ListSnapshotsReply>);

using Request = std::variant<HelloRequest, IdRequest, CreateRequest, ListRequest, SetNetworkRequest,
                             EgressSocketsRequest, TemplateRequest, SnapshotRequest,
                             SnapshotIdRequest, PlainRequest, SetMemoryRequest>;

// Checks size, magic, version, operation and every field. An Error with code invalid_argument names
// the field; `internal` says that the bytes are not a message at all.
Result<Request> parse_request(std::span<const std::byte> datagram);
// Field by field: ids, host name, UUID, bounds of the limits. Pure.
Result<void> validate(const CreateRequest& plan);
Result<void> validate(const NetworkFields& fields);
Result<void> validate_id(std::string_view id, std::string_view what);
Result<void> validate_snapshot_id(std::string_view id, std::string_view what);

// Bounds of a plan.
inline constexpr std::uint64_t kMinMemory = 16ull << 20, kMaxMemory = 16ull << 40;
inline constexpr std::uint64_t kMinDisk = 64ull << 20, kMaxDisk = 16ull << 40,
                               kDiskUnit = 1ull << 20;
inline constexpr std::uint32_t kMinCpuMillis = 10, kMaxCpuMillis = 1'000'000;
inline constexpr std::uint32_t kMinPids = 8, kMaxPids = 1'000'000;

// Bounded strings. `to_field` fails if the text does not fit; `from_field` stops at the NUL, or at
// the end.
template <std::size_t N>
bool to_field(char (&field)[N], std::string_view text) {
  if (text.size() >= N) return false;
  for (std::size_t i = 0; i < N; ++i) field[i] = i < text.size() ? text[i] : '\0';
  return true;
}
// For text made for people: cut to what fits.
template <std::size_t N>
void to_field_cut(char (&field)[N], std::string_view text) {
  to_field(field, text.substr(0, N - 1));
}
template <std::size_t N>
std::string_view from_field(const char (&field)[N]) {
  std::size_t n = 0;
  while (n < N && field[n] != '\0') ++n;
  return {field, n};
}

// Fails if a list has more entries than fit.
inline Result<NetworkFields> to_fields(const runtime::NetworkPolicy& policy) {
  if (policy.allow.size() > runtime::kMaxNetworkEntries ||
      policy.deny.size() > runtime::kMaxNetworkEntries) {
    return make_error(Errc::invalid_argument, "a network policy has at most " +
                                                  std::to_string(runtime::kMaxNetworkEntries) +
                                                  " entries in each list");
  }
  NetworkFields fields;
  for (const Cidr4& block : policy.allow)
    fields.allow[fields.allow_count++] = {block.network.value, block.bits};
  for (const Cidr4& block : policy.deny)
    fields.deny[fields.deny_count++] = {block.network.value, block.bits};
  fields.intercept = std::uint8_t(policy.intercept);
  return fields;
}
// Preconditions: the fields are valid.
runtime::NetworkPolicy to_policy(const NetworkFields& fields);

// A message as the bytes of one datagram.
template <class T>
std::span<const std::byte> bytes_of(const T& message) {
  static_assert(is_message<T>);
  return std::as_bytes(std::span(&message, 1));
}

}  // namespace atl::jail::wire
