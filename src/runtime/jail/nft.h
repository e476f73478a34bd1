// Requests to nf_tables: tables, chains, sets and rules as netlink messages of one transaction.
//
// Pure encoding; a sys::NetlinkSocket of NETLINK_NETFILTER sends it. The kernel takes a
// transaction as a whole or not at all. What a rule does is a list of expressions, built by the
// functions of namespace nft and read from left to right:
//   batch.rule("forward", {nft::from("uplink"), nft::tracked(nft::kEstablished), nft::accept()});
// An expression that does not match ends the rule.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/ipv4.h"
#include "sys/netlink.h"

namespace atl::jail {
namespace nft {

// One or more expressions in the kernel's encoding.
using Expression = sys::NetlinkAttributes;

Expression from(const std::string& interface);    // the packet came in there
Expression not_to(const std::string& interface);  // it does not leave there
Expression to(const std::string& interface);
Expression source_is(Ipv4 address);
Expression source_is_not(Ipv4 address);
Expression destination_is(Ipv4 address);
Expression destination_in(const std::string& set);
Expression destination_in(std::uint32_t set_id);  // an unnamed set of the same transaction
Expression udp_port(std::uint16_t port);          // destination
Expression tcp_port(std::uint16_t port);
Expression tcp();
// Connection tracking.
inline constexpr std::uint32_t kInvalid = 1, kEstablished = 2, kRelated = 4;
Expression tracked(std::uint32_t states);
Expression redirected();  // its destination was changed by us
// No route leads back to the source through the interface it came from.
Expression spoofed();
Expression not_unicast();                             // the destination, seen from here
Expression mark_from_source(const std::string& map);  // sets the packet's mark; needs an entry
Expression mark_has(std::uint32_t bits);
Expression mark_is_zero();
// Connections remember the bits of the mark that their first packet had. An established one counts
// if its address together with those bits is in a set.
Expression remember_mark(std::uint32_t bits);
Expression source_remembered(const std::string& set);
Expression destination_remembered(const std::string& set);
Expression verdict_by_source(const std::string& map);
// The source has more connections than that, this one included; counted in a set of counters.
Expression source_has_more_than(const std::string& set, std::uint32_t connections);

Expression accept();
Expression drop();
Expression go_to(const std::string& chain);
Expression redirect_to(Ipv4 address, std::uint16_t port);
Expression masquerade();
Expression reset_connection();
Expression answer_prohibited();

}  // namespace nft

// First and last address of a block of them.
struct AddressRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  bool operator==(const AddressRange&) const = default;
};
// Sorted, without overlaps and without gaps of nothing between neighbours.
std::vector<AddressRange> merge_ranges(std::span<const Cidr4> blocks);

class NftBatch {
 public:
  enum class Family : std::uint8_t { ip = 2, ip6 = 10 };
  enum class Policy : std::uint8_t { drop = 0, accept = 1 };
  struct Hook {
    const char* type;  // "filter", "nat"
    std::uint32_t number;
    std::int32_t priority;
    Policy policy;
  };

  NftBatch(Family family, std::string table);
  // Further requests are for this table.
  void switch_to(Family family, std::string table);

  void add_table();
  void delete_table();
  void add_chain(const std::string& name);
  void add_base_chain(const std::string& name, const Hook& hook);
  void delete_chain(const std::string& name);  // with its rules
  void rule(const std::string& chain, std::initializer_list<nft::Expression> expressions);

  void add_range_set(const std::string& name, std::span<const AddressRange> ranges);
  // For one rule of this transaction, with which it goes. Returns its id.
  std::uint32_t add_unnamed_range_set(std::span<const AddressRange> ranges);
  void add_counter_set(const std::string& name, std::uint32_t size);
  void add_mark_map(const std::string& name);     // address -> mark
  void add_verdict_map(const std::string& name);  // address -> verdict
  void add_pair_set(const std::string& name);     // address and mark
  void add_pair(const std::string& set, Ipv4 address, std::uint32_t mark);
  void delete_pair(const std::string& set, Ipv4 address, std::uint32_t mark);
  void add_mark(const std::string& map, Ipv4 key, std::uint32_t mark);
  void add_go_to(const std::string& map, Ipv4 key, const std::string& chain);
  void delete_element(const std::string& map, Ipv4 key);

  // The whole transaction.
  sys::NetlinkBatch finish() &&;

 private:
  void add(std::uint16_t type, std::uint16_t flags, const sys::NetlinkAttributes& attributes);
  struct SetType {
    std::uint32_t flags = 0;
    std::uint32_t data_type = 0;
    std::uint32_t data_bytes = 0;
    bool pair = false;
    std::uint32_t size = 0;  // 0: no limit
  };
  std::uint32_t add_set(const std::string& name, const SetType& type);
  void add_ranges(const std::string& set, std::uint32_t id, std::span<const AddressRange> ranges);
  void elements(std::uint16_t type, const std::string& set, std::uint32_t id,
                const sys::NetlinkAttributes& list);

  struct Pending {
    std::uint16_t type;
    std::uint16_t flags;
    Family family;
    sys::NetlinkAttributes attributes;
  };
  Family family_;
  std::string table_;
  std::uint32_t last_set_ = 0;
  std::vector<Pending> pending_;
};

// Asks for all elements of a map; `parse_marks` reads the answers.
sys::NetlinkBatch dump_elements(NftBatch::Family family, const std::string& table,
                                const std::string& map);
struct MarkElement {
  Ipv4 key;
  std::uint32_t mark = 0;
};
std::vector<MarkElement> parse_marks(std::span<const std::byte> body);

}  // namespace atl::jail
