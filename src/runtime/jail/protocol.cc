#include "runtime/jail/protocol.h"

#include <algorithm>
#include <cstring>

namespace atl::jail::wire {
namespace {

Error malformed(std::string_view what) {
  return make_error(Errc::internal, "not a message: " + std::string(what));
}
Error invalid(std::string_view what) {
  return make_error(Errc::invalid_argument, std::string(what));
}

bool is_id_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}
bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}
bool is_snapshot_char(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_hex_char(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// A string field holds one NUL-terminated string and nothing behind it.
template <std::size_t N>
Result<std::string_view> text_field(const char (&field)[N], std::string_view what) {
  const std::string_view text = from_field(field);
  if (text.size() == N) return invalid(std::string(what) + " has no end");
  if (!std::all_of(field + text.size(), field + N, [](char c) { return c == '\0'; })) {
    return invalid(std::string(what) + " has bytes behind its end");
  }
  return text;
}

template <std::size_t N>
Result<void> reserved_field(const std::uint8_t (&field)[N]) {
  if (!std::all_of(field, field + N, [](std::uint8_t b) { return b == 0; }))
    return invalid("a reserved field is used");
  return {};
}

template <std::size_t N>
Result<void> id_field(const char (&field)[N], std::string_view what) {
  ATOLL_TRY_ASSIGN(std::string_view text, text_field(field, what));
  return validate_id(text, what);
}

Result<void> snapshot_field(const char (&field)[kSnapshotIdSize], std::string_view what) {
  ATOLL_TRY_ASSIGN(std::string_view text, text_field(field, what));
  return validate_snapshot_id(text, what);
}

Result<void> range_field(std::uint64_t value, std::uint64_t least, std::uint64_t most,
                         std::string_view what) {
  if (value < least || value > most) {
    return invalid(std::string(what) + " is not between " + std::to_string(least) + " and " +
                   std::to_string(most));
  }
  return {};
}

Result<void> hostname_field(const char (&field)[kHostnameSize]) {
  ATOLL_TRY_ASSIGN(std::string_view text, text_field(field, "hostname"));
  if (text.empty() || text.front() == '-' || text.back() == '-' ||
      !std::all_of(text.begin(), text.end(), is_host_char)) {
    return invalid("hostname is not a DNS label");
  }
  return {};
}

Result<void> boot_id_field(const char (&field)[kBootIdSize]) {
  ATOLL_TRY_ASSIGN(std::string_view text, text_field(field, "boot_id"));
  bool good = text.size() == kBootIdSize - 1;
  for (std::size_t i = 0; good && i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    good = dash ? text[i] == '-' : is_hex_char(text[i]);
  }
  if (!good) return invalid("boot_id is not a UUID in lower case");
  return {};
}

Result<void> blocks_field(const NetworkBlock (&blocks)[runtime::kMaxNetworkEntries],
                          std::uint32_t count, std::string_view what) {
  if (count > runtime::kMaxNetworkEntries)
    return invalid(std::string(what) + " has too many entries");
  for (std::size_t i = 0; i < runtime::kMaxNetworkEntries; ++i) {
    const NetworkBlock& block = blocks[i];
    ATOLL_TRY(reserved_field(block.reserved));
    if (i >= count && (block.network != 0 || block.bits != 0))
      return invalid(std::string(what) + " has entries behind its end");
    const std::uint32_t host_bits =
        block.bits == 0 ? ~std::uint32_t(0) : (std::uint64_t(1) << (32 - block.bits % 33)) - 1;
    if (block.bits > 32 || (block.network & host_bits) != 0)
      return invalid(std::string(what) + " has an entry that is not a block of addresses");
  }
  return {};
}

// Copies the bytes: a datagram has no alignment.
template <class T>
Result<T> read_as(std::span<const std::byte> datagram) {
  static_assert(is_message<T>);
  if (datagram.size() != sizeof(T)) return malformed("wrong size");
  T message;
  std::memcpy(&message, datagram.data(), sizeof(T));
  return message;
}

}  // namespace

Result<void> validate_id(std::string_view id, std::string_view what) {
  if (id.empty() || id.size() >= kIdSize || !std::all_of(id.begin(), id.end(), is_id_char)) {
    return invalid(std::string(what) + " is not [a-z0-9_-]{1,64}");
  }
  return {};
}

Result<void> validate_snapshot_id(std::string_view id, std::string_view what) {
  if (id.size() != kSnapshotIdSize - 1 || id.front() != 's' ||
      !std::all_of(id.begin(), id.end(), is_snapshot_char)) {
    return invalid(std::string(what) + " is not s[a-z0-9]{20}");
  }
  return {};
}

namespace {

// Which disk and memory go together.
Result<void> origin_fields(const CreateRequest& plan) {
  using runtime::Memory;
  ATOLL_TRY(range_field(plan.kept_disk, 0, 1, "kept_disk"));
  ATOLL_TRY(range_field(plan.memory, 0, std::uint8_t(Memory::snapshot), "memory"));
  ATOLL_TRY(range_field(plan.replace, 0, 1, "replace"));
  ATOLL_TRY_ASSIGN(std::string_view snapshot, text_field(plan.snapshot, "snapshot"));
  if (!snapshot.empty()) {
    ATOLL_TRY(validate_snapshot_id(snapshot, "snapshot"));
  }
  const Memory memory = Memory(plan.memory);
  if (memory == Memory::kept && plan.kept_disk == 0)
    return invalid("kept memory goes with the kept disk");
  if (memory == Memory::snapshot && (plan.kept_disk != 0 || snapshot.empty()))
    return invalid("the memory of a snapshot goes with its disk");
  if (plan.replace != 0 && (plan.kept_disk != 0 || snapshot.empty()))
    return invalid("only a sandbox made from a snapshot can replace another");
  return {};
}

}  // namespace

Result<void> validate(const CreateRequest& plan) {
  ATOLL_TRY(id_field(plan.id, "id"));
  ATOLL_TRY(id_field(plan.template_id, "template_id"));
  ATOLL_TRY(hostname_field(plan.hostname));
  ATOLL_TRY(boot_id_field(plan.boot_id));
  ATOLL_TRY(origin_fields(plan));
  ATOLL_TRY(range_field(plan.memory_bytes, kMinMemory, kMaxMemory, "memory_bytes"));
  ATOLL_TRY(range_field(plan.disk_bytes, kMinDisk, kMaxDisk, "disk_bytes"));
  if (plan.disk_bytes % kDiskUnit != 0) return invalid("disk_bytes is not a multiple of 1 MiB");
  ATOLL_TRY(range_field(plan.cpu_millis, kMinCpuMillis, kMaxCpuMillis, "cpu_millis"));
  ATOLL_TRY(range_field(plan.pids, kMinPids, kMaxPids, "pids"));
  return validate(plan.network);
}

Result<void> validate(const NetworkFields& fields) {
  ATOLL_TRY(blocks_field(fields.allow, fields.allow_count, "network.allow"));
  ATOLL_TRY(blocks_field(fields.deny, fields.deny_count, "network.deny"));
  ATOLL_TRY(reserved_field(fields.reserved));
  return range_field(fields.intercept, 0, std::uint8_t(runtime::Intercept::tcp),
                     "network.intercept");
}

runtime::NetworkPolicy to_policy(const NetworkFields& fields) {
  runtime::NetworkPolicy policy;
  for (std::size_t i = 0; i < fields.allow_count; ++i)
    policy.allow.push_back({Ipv4{fields.allow[i].network}, fields.allow[i].bits});
  for (std::size_t i = 0; i < fields.deny_count; ++i)
    policy.deny.push_back({Ipv4{fields.deny[i].network}, fields.deny[i].bits});
  policy.intercept = runtime::Intercept(fields.intercept);
  return policy;
}

Result<Request> parse_request(std::span<const std::byte> datagram) {
  Header header;
  if (datagram.size() < sizeof(header)) return malformed("too short");
  std::memcpy(&header, datagram.data(), sizeof(header));
  if (header.magic != kMagic) return malformed("wrong magic");
  if (header.version != kVersion) return malformed("version " + std::to_string(header.version));
  switch (Op(header.op)) {
    case Op::hello: {
      ATOLL_TRY_ASSIGN(HelloRequest request, read_as<HelloRequest>(datagram));
      if (request.reserved != 0) return invalid("a reserved field is used");
      return Request(request);
    }
    case Op::create: {
      ATOLL_TRY_ASSIGN(CreateRequest request, read_as<CreateRequest>(datagram));
      ATOLL_TRY(validate(request));
      return Request(request);
    }
    case Op::destroy:
    case Op::freeze:
    case Op::thaw:
    case Op::kill:
    case Op::agent_dir:
    case Op::stats:
    case Op::warm:
    case Op::dump:
    case Op::cancel_dump: {
      ATOLL_TRY_ASSIGN(IdRequest request, read_as<IdRequest>(datagram));
      ATOLL_TRY(id_field(request.id, "id"));
      ATOLL_TRY(reserved_field(request.reserved));
      return Request(request);
    }
    case Op::list:
    case Op::list_snapshots: {
      ATOLL_TRY_ASSIGN(ListRequest request, read_as<ListRequest>(datagram));
      ATOLL_TRY_ASSIGN(std::string_view after, text_field(request.after, "after"));
      if (!after.empty()) {
        ATOLL_TRY(validate_id(after, "after"));
      }
      ATOLL_TRY(reserved_field(request.reserved));
      return Request(request);
    }
    case Op::set_network: {
      ATOLL_TRY_ASSIGN(SetNetworkRequest request, read_as<SetNetworkRequest>(datagram));
      ATOLL_TRY(id_field(request.id, "id"));
      ATOLL_TRY(reserved_field(request.reserved));
      ATOLL_TRY(validate(request.network));
      return Request(request);
    }
    case Op::set_memory: {
      ATOLL_TRY_ASSIGN(SetMemoryRequest request, read_as<SetMemoryRequest>(datagram));
      ATOLL_TRY(id_field(request.id, "id"));
      ATOLL_TRY(reserved_field(request.reserved));
      ATOLL_TRY(range_field(request.memory_bytes, kMinMemory, kMaxMemory, "memory_bytes"));
      return Request(request);
    }
    case Op::egress_sockets: {
      ATOLL_TRY_ASSIGN(EgressSocketsRequest request, read_as<EgressSocketsRequest>(datagram));
      return Request(request);
    }
    case Op::prepare: {
      ATOLL_TRY_ASSIGN(TemplateRequest request, read_as<TemplateRequest>(datagram));
      ATOLL_TRY(id_field(request.template_id, "template_id"));
      ATOLL_TRY(reserved_field(request.reserved));
      return Request(request);
    }
    case Op::snapshot: {
      ATOLL_TRY_ASSIGN(SnapshotRequest request, read_as<SnapshotRequest>(datagram));
      ATOLL_TRY(id_field(request.id, "id"));
      ATOLL_TRY(snapshot_field(request.snapshot, "snapshot"));
      ATOLL_TRY(range_field(request.disk_only, 0, 1, "disk_only"));
      return Request(request);
    }
    case Op::remove_snapshot: {
      ATOLL_TRY_ASSIGN(SnapshotIdRequest request, read_as<SnapshotIdRequest>(datagram));
      ATOLL_TRY(snapshot_field(request.snapshot, "snapshot"));
      ATOLL_TRY(reserved_field(request.reserved));
      return Request(request);
    }
    case Op::memory_support: {
      ATOLL_TRY_ASSIGN(PlainRequest request, read_as<PlainRequest>(datagram));
      return Request(request);
    }
    case Op::exited:
      break;
  }
  return malformed("operation " + std::to_string(header.op));
}

}  // namespace atl::jail::wire
