// Datagrams to the warden: whatever the bytes, parsing answers with a request that keeps its
// promises or with an error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

#include "runtime/jail/plan.h"
#include "runtime/jail/protocol.h"
#include "runtime/jail/ranges.h"
#include "sys/cgroup.h"

namespace {

using namespace atl;

void require(bool condition) {
  if (!condition) std::abort();
}

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") == std::string_view::npos;
}

void check(const jail::wire::CreateRequest& request) {
  const jail::LaunchSpec spec = jail::to_launch_spec(request, 1000);
  require(is_name(spec.id) && is_name(spec.template_id));
  require(spec.hostname.find_first_of("/\n \t\"'") == std::string::npos && !spec.hostname.empty());
  require(spec.boot_id.size() == 36);
  require(spec.network.allow.size() <= runtime::kMaxNetworkEntries &&
          spec.network.deny.size() <= runtime::kMaxNetworkEntries);
  for (const auto* list : {&spec.network.allow, &spec.network.deny}) {
    for (const Cidr4& block : *list)
      require(Cidr4::parse(block.network.str() + "/" + std::to_string(block.bits)) == block);
  }
  require(spec.disk_bytes >= jail::wire::kMinDisk && spec.disk_bytes % jail::wire::kDiskUnit == 0);
  for (sys::CgroupKind kind : {sys::CgroupKind::v1, sys::CgroupKind::v2}) {
    jail::HostFacts facts;
    facts.cgroups.kind = kind;
    for (const jail::Step& step : jail::make_launch_plan(spec, facts)) {
      require(jail::describe(step).find('\0') == std::string::npos);
    }
  }
}

}  // namespace

namespace {

void parse(std::span<const std::byte> bytes) {
  auto request = jail::wire::parse_request(bytes);
  if (request) {
    if (const auto* create = std::get_if<jail::wire::CreateRequest>(&*request)) check(*create);
    if (const auto* named = std::get_if<jail::wire::IdRequest>(&*request)) {
      require(is_name(jail::wire::from_field(named->id)));
    }
    if (const auto* limit = std::get_if<jail::wire::SetMemoryRequest>(&*request)) {
      require(is_name(jail::wire::from_field(limit->id)));
      require(limit->memory_bytes >= jail::wire::kMinMemory);
    }
    if (const auto* change = std::get_if<jail::wire::SetNetworkRequest>(&*request)) {
      require(is_name(jail::wire::from_field(change->id)));
    }
  } else {
    require(request.error().code == Errc::internal ||
            request.error().code == Errc::invalid_argument);
  }
}

// The bytes as the body of a create request whose header is right: gets at the fields without
// guessing the header first.
void parse_as_create(std::span<const std::byte> bytes) {
  jail::wire::CreateRequest request;
  std::memcpy(&request, bytes.data(), std::min(bytes.size(), sizeof(request)));
  request.header = {};
  request.header.op = std::uint16_t(jail::wire::Op::create);
  parse(jail::wire::bytes_of(request));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  parse(bytes);
  if (!bytes.empty()) parse_as_create(bytes);
  // The other texts that a warden reads at its start.
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)sys::parse_cgroup_layout(text);
  (void)jail::parse_range_owner(text);
  return 0;
}
