// What a sandbox is made of, as plain values: the only language between the engine and a runtime.
//
// Nothing here is a path on the host. A runtime finds templates and sandboxes by id below its home,
// so that whoever fills in a spec cannot point it elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/ipv4.h"

namespace atl::runtime {

struct Limits {
  std::uint64_t memory_bytes = 512ull << 20;
  std::uint32_t cpu_millis = 2000;  // 1000 = one CPU
  std::uint32_t pids = 1024;
  std::uint64_t disk_bytes = 5ull << 30;
  bool operator==(const Limits&) const = default;
};

// Which outbound connections of a sandbox the kernel looks at for itself, and which it hands to the
// server's egress proxy (src/egress), which then decides by the whole policy.
enum class Intercept : std::uint8_t {
  none,
  web,  // TCP 80 and 443: rules by name, header transforms
  tcp,  // all TCP; UDP other than DNS is dropped: an upstream proxy is set
};

// What may leave a sandbox, as far as the kernel enforces it. Order: never-reachable addresses are
// dropped; intercepted connections go to the egress proxy; `allow` is accepted; `deny` is dropped;
// the rest is accepted. DNS goes to the server's resolver and nowhere else. In force before the
// first instruction runs inside.
struct NetworkPolicy {
  std::vector<Cidr4> allow;
  std::vector<Cidr4> deny;
  Intercept intercept = Intercept::none;
  bool operator==(const NetworkPolicy&) const = default;
};
inline constexpr std::size_t kMaxNetworkEntries = 200;  // of each list

// 192.0.0.80: what the resolver answers for the server's own sandbox hosts. Of the never-reachable
// addresses it is the one exception: TCP to it, on any port and from any sandbox, goes to the
// egress proxy, which passes it to the server's own ingress or refuses it.
inline constexpr Ipv4 kOwnIngressAddress{0xc0000050};

// Where the disk of a sandbox comes from.
enum class Disk : std::uint8_t {
  fresh,  // empty, over the template
  kept,   // the one that `Runtime::kill` left: a reboot
};

// Where the memory of a sandbox comes from, that is, what runs in it first.
enum class Memory : std::uint8_t {
  none,      // nothing: a boot
  kept,      // what `Runtime::dump` left, with Disk::kept: its processes go on
  snapshot,  // that of SandboxSpec::snapshot, over its disk: a copy of them goes on here
};

// A snapshot in a runtime's home: `s` + 20 of [a-z0-9], see new_snapshot_id(). Empty: none.
using SnapshotId = std::string;

struct SandboxSpec {
  SandboxId id;
  std::string template_id;  // directory name below templates/
  std::string hostname = "e2b";
  std::string boot_id;  // uuid shown as /proc/sys/kernel/random/boot_id
  Limits limits;
  NetworkPolicy network;
  Disk disk = Disk::fresh;
  Memory memory = Memory::none;
  // With Disk::fresh: the disk begins as that of this snapshot was. template_id is the snapshot's.
  // With Disk::kept it is ignored: a kept disk knows what it lies over.
  SnapshotId snapshot;
  // With a snapshot: a dumped or dead sandbox of this id is put aside until the new one runs, and
  // is removed then; after an error, or a launch that was cut off, it is there again as it was.
  bool replace = false;
};

SnapshotId new_snapshot_id();
bool is_snapshot_id(std::string_view text);

// How long each step of a launch took, in order; the breakdown is a metric.
struct StepTime {
  std::string step;
  std::chrono::microseconds took;
};

}  // namespace atl::runtime
