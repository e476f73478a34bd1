#include "runtime/jail/nft.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>

#include <algorithm>
#include <cstring>

namespace atl::jail {
namespace {

using sys::NetlinkAttributes;

// What the nft tool calls these types when it lists a set.
constexpr std::uint32_t kTypeIpv4 = 7;
constexpr std::uint32_t kTypeMark = 19;
constexpr std::uint32_t kTypePair = kTypeIpv4 << 6 | kTypeMark;
constexpr std::uint32_t kSourceOffset = 12, kDestinationOffset = 16;  // in an IPv4 header
constexpr std::uint32_t kPortOffset = 2;                              // destination, TCP and UDP

template <class T>
std::span<const std::byte> raw(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

NetlinkAttributes data_value(std::span<const std::byte> value) {
  NetlinkAttributes out;
  out.add(NFTA_DATA_VALUE, value);
  return out;
}

NetlinkAttributes data_verdict(std::int32_t code, const std::string& chain = {}) {
  NetlinkAttributes verdict;
  verdict.add_be32(NFTA_VERDICT_CODE, std::uint32_t(code));
  if (!chain.empty()) verdict.add_text(NFTA_VERDICT_CHAIN, chain);
  NetlinkAttributes out;
  out.add_nested(NFTA_DATA_VERDICT, verdict);
  return out;
}

NetlinkAttributes named(const char* name, const NetlinkAttributes& data) {
  NetlinkAttributes inner;
  inner.add_text(NFTA_EXPR_NAME, name);
  inner.add_nested(NFTA_EXPR_DATA, data);
  NetlinkAttributes out;
  out.add_nested(NFTA_LIST_ELEM, inner);
  return out;
}

void append(NetlinkAttributes& to, const NetlinkAttributes& more) { to.add_raw(more.bytes()); }

NetlinkAttributes sequence(std::initializer_list<NetlinkAttributes> parts) {
  NetlinkAttributes out;
  for (const NetlinkAttributes& part : parts) append(out, part);
  return out;
}

NetlinkAttributes load_meta(std::uint32_t key) {
  NetlinkAttributes data;
  data.add_be32(NFTA_META_DREG, NFT_REG_1);
  data.add_be32(NFTA_META_KEY, key);
  return named("meta", data);
}

NetlinkAttributes load_payload(std::uint32_t base, std::uint32_t offset, std::uint32_t bytes) {
  NetlinkAttributes data;
  data.add_be32(NFTA_PAYLOAD_DREG, NFT_REG_1);
  data.add_be32(NFTA_PAYLOAD_BASE, base);
  data.add_be32(NFTA_PAYLOAD_OFFSET, offset);
  data.add_be32(NFTA_PAYLOAD_LEN, bytes);
  return named("payload", data);
}

NetlinkAttributes load_ct(std::uint32_t key, std::uint32_t reg = NFT_REG_1) {
  NetlinkAttributes data;
  data.add_be32(NFTA_CT_DREG, reg);
  data.add_be32(NFTA_CT_KEY, key);
  return named("ct", data);
}

NetlinkAttributes load_fib(std::uint32_t result, std::uint32_t flags) {
  NetlinkAttributes data;
  data.add_be32(NFTA_FIB_DREG, NFT_REG_1);
  data.add_be32(NFTA_FIB_RESULT, result);
  data.add_be32(NFTA_FIB_FLAGS, flags);
  return named("fib", data);
}

NetlinkAttributes compare(std::uint32_t op, std::span<const std::byte> value) {
  NetlinkAttributes data;
  data.add_be32(NFTA_CMP_SREG, NFT_REG_1);
  data.add_be32(NFTA_CMP_OP, op);
  data.add_nested(NFTA_CMP_DATA, data_value(value));
  return named("cmp", data);
}

// Register 1 & mask.
NetlinkAttributes mask_bits(std::uint32_t mask) {
  const std::uint32_t zero = 0;
  NetlinkAttributes data;
  data.add_be32(NFTA_BITWISE_SREG, NFT_REG_1);
  data.add_be32(NFTA_BITWISE_DREG, NFT_REG_1);
  data.add_be32(NFTA_BITWISE_LEN, sizeof(mask));
  data.add_nested(NFTA_BITWISE_MASK, data_value(raw(mask)));
  data.add_nested(NFTA_BITWISE_XOR, data_value(raw(zero)));
  return named("bitwise", data);
}

// Register 1 & mask, then != 0.
NetlinkAttributes any_bit(std::uint32_t mask) {
  const std::uint32_t zero = 0;
  return sequence({mask_bits(mask), compare(NFT_CMP_NEQ, raw(zero))});
}

NetlinkAttributes interface_is(std::uint32_t key, std::uint32_t op, const std::string& interface) {
  char name[IFNAMSIZ] = {};
  std::memcpy(name, interface.data(), std::min(interface.size(), sizeof(name) - 1));
  return sequence({load_meta(key), compare(op, raw(name))});
}

NetlinkAttributes address_is(std::uint32_t offset, std::uint32_t op, Ipv4 address) {
  const std::uint32_t value = htonl(address.value);
  return sequence(
      {load_payload(NFT_PAYLOAD_NETWORK_HEADER, offset, sizeof(value)), compare(op, raw(value))});
}

NetlinkAttributes protocol_is(std::uint8_t protocol) {
  return sequence({load_meta(NFT_META_L4PROTO), compare(NFT_CMP_EQ, raw(protocol))});
}

NetlinkAttributes port_is(std::uint8_t protocol, std::uint16_t port) {
  const std::uint16_t value = htons(port);
  return sequence({protocol_is(protocol),
                   load_payload(NFT_PAYLOAD_TRANSPORT_HEADER, kPortOffset, sizeof(value)),
                   compare(NFT_CMP_EQ, raw(value))});
}

// Address and the connection's mark side by side in the registers.
NetlinkAttributes lookup_pair(std::uint32_t offset, const std::string& set) {
  NetlinkAttributes data;
  data.add_text(NFTA_LOOKUP_SET, set);
  data.add_be32(NFTA_LOOKUP_SREG, NFT_REG_1);
  return sequence({load_payload(NFT_PAYLOAD_NETWORK_HEADER, offset, sizeof(std::uint32_t)),
                   load_ct(NFT_CT_MARK, NFT_REG32_01), named("lookup", data)});
}

NetlinkAttributes lookup(std::uint32_t offset, const std::string& set, std::uint32_t id, int dreg) {
  NetlinkAttributes data;
  data.add_text(NFTA_LOOKUP_SET, set);
  data.add_be32(NFTA_LOOKUP_SREG, NFT_REG_1);
  if (dreg >= 0) data.add_be32(NFTA_LOOKUP_DREG, std::uint32_t(dreg));
  if (id != 0) data.add_be32(NFTA_LOOKUP_SET_ID, id);
  return sequence({load_payload(NFT_PAYLOAD_NETWORK_HEADER, offset, sizeof(std::uint32_t)),
                   named("lookup", data)});
}

NetlinkAttributes immediate(std::uint32_t reg, const NetlinkAttributes& value) {
  NetlinkAttributes data;
  data.add_be32(NFTA_IMMEDIATE_DREG, reg);
  data.add_nested(NFTA_IMMEDIATE_DATA, value);
  return named("immediate", data);
}

NetlinkAttributes reject(std::uint32_t type, std::uint8_t code) {
  NetlinkAttributes data;
  data.add_be32(NFTA_REJECT_TYPE, type);
  data.add_u8(NFTA_REJECT_ICMP_CODE, code);
  return named("reject", data);
}

NetlinkAttributes element(std::uint32_t key, const NetlinkAttributes* data, std::uint32_t flags) {
  const std::uint32_t value = htonl(key);
  NetlinkAttributes inner;
  inner.add_nested(NFTA_SET_ELEM_KEY, data_value(raw(value)));
  if (data != nullptr) inner.add_nested(NFTA_SET_ELEM_DATA, *data);
  if (flags != 0) inner.add_be32(NFTA_SET_ELEM_FLAGS, flags);
  NetlinkAttributes out;
  out.add_nested(NFTA_LIST_ELEM, inner);
  return out;
}

NetlinkAttributes pair_element(Ipv4 address, std::uint32_t mark) {
  const std::uint32_t key[2] = {htonl(address.value), mark};
  NetlinkAttributes inner;
  inner.add_nested(NFTA_SET_ELEM_KEY, data_value(raw(key)));
  NetlinkAttributes out;
  out.add_nested(NFTA_LIST_ELEM, inner);
  return out;
}

std::uint16_t message_type(std::uint16_t type) { return NFNL_SUBSYS_NFTABLES << 8 | type; }

nfgenmsg family_header(std::uint8_t family, std::uint16_t resource = 0) {
  nfgenmsg header{};
  header.nfgen_family = family;
  header.version = NFNETLINK_V0;
  header.res_id = htons(resource);
  return header;
}

}  // namespace

namespace nft {

Expression from(const std::string& interface) {
  return interface_is(NFT_META_IIFNAME, NFT_CMP_EQ, interface);
}
Expression not_to(const std::string& interface) {
  return interface_is(NFT_META_OIFNAME, NFT_CMP_NEQ, interface);
}
Expression to(const std::string& interface) {
  return interface_is(NFT_META_OIFNAME, NFT_CMP_EQ, interface);
}
Expression source_is(Ipv4 address) { return address_is(kSourceOffset, NFT_CMP_EQ, address); }
Expression source_is_not(Ipv4 address) { return address_is(kSourceOffset, NFT_CMP_NEQ, address); }
Expression destination_is(Ipv4 address) {
  return address_is(kDestinationOffset, NFT_CMP_EQ, address);
}
Expression destination_in(const std::string& set) { return lookup(kDestinationOffset, set, 0, -1); }
Expression destination_in(std::uint32_t set_id) {
  return lookup(kDestinationOffset, "__set%d", set_id, -1);
}
Expression udp_port(std::uint16_t port) { return port_is(IPPROTO_UDP, port); }
Expression tcp_port(std::uint16_t port) { return port_is(IPPROTO_TCP, port); }
Expression tcp() { return protocol_is(IPPROTO_TCP); }
Expression tracked(std::uint32_t states) {
  return sequence({load_ct(NFT_CT_STATE), any_bit(states)});
}
Expression redirected() { return sequence({load_ct(NFT_CT_STATUS), any_bit(IPS_DST_NAT)}); }
Expression spoofed() {
  const std::uint32_t none = 0;
  return sequence({load_fib(NFT_FIB_RESULT_OIF, NFTA_FIB_F_SADDR | NFTA_FIB_F_IIF),
                   compare(NFT_CMP_EQ, raw(none))});
}
Expression not_unicast() {
  const std::uint32_t unicast = RTN_UNICAST;
  return sequence(
      {load_fib(NFT_FIB_RESULT_ADDRTYPE, NFTA_FIB_F_DADDR), compare(NFT_CMP_NEQ, raw(unicast))});
}
Expression mark_from_source(const std::string& map) {
  NetlinkAttributes data;
  data.add_be32(NFTA_META_SREG, NFT_REG_1);
  data.add_be32(NFTA_META_KEY, NFT_META_MARK);
  return sequence({lookup(kSourceOffset, map, 0, NFT_REG_1), named("meta", data)});
}
Expression mark_has(std::uint32_t bits) {
  return sequence({load_meta(NFT_META_MARK), any_bit(bits)});
}
Expression mark_is_zero() {
  const std::uint32_t zero = 0;
  return sequence({load_meta(NFT_META_MARK), compare(NFT_CMP_EQ, raw(zero))});
}
Expression remember_mark(std::uint32_t bits) {
  NetlinkAttributes data;
  data.add_be32(NFTA_CT_SREG, NFT_REG_1);
  data.add_be32(NFTA_CT_KEY, NFT_CT_MARK);
  return sequence({load_meta(NFT_META_MARK), mask_bits(bits), named("ct", data)});
}
Expression source_remembered(const std::string& set) { return lookup_pair(kSourceOffset, set); }
Expression destination_remembered(const std::string& set) {
  return lookup_pair(kDestinationOffset, set);
}
Expression verdict_by_source(const std::string& map) {
  return lookup(kSourceOffset, map, 0, NFT_REG_VERDICT);
}

Expression source_has_more_than(const std::string& set, std::uint32_t connections) {
  NetlinkAttributes limit;
  limit.add_be32(NFTA_CONNLIMIT_COUNT, connections);
  limit.add_be32(NFTA_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV);
  NetlinkAttributes counter;
  counter.add_text(NFTA_EXPR_NAME, "connlimit");
  counter.add_nested(NFTA_EXPR_DATA, limit);
  NetlinkAttributes data;
  data.add_text(NFTA_DYNSET_SET_NAME, set);
  data.add_be32(NFTA_DYNSET_OP, NFT_DYNSET_OP_ADD);
  data.add_be32(NFTA_DYNSET_SREG_KEY, NFT_REG_1);
  data.add_nested(NFTA_DYNSET_EXPR, counter);
  return sequence({load_payload(NFT_PAYLOAD_NETWORK_HEADER, kSourceOffset, sizeof(std::uint32_t)),
                   named("dynset", data)});
}

Expression accept() { return immediate(NFT_REG_VERDICT, data_verdict(NF_ACCEPT)); }
Expression drop() { return immediate(NFT_REG_VERDICT, data_verdict(NF_DROP)); }
Expression go_to(const std::string& chain) {
  return immediate(NFT_REG_VERDICT, data_verdict(NFT_GOTO, chain));
}
Expression redirect_to(Ipv4 address, std::uint16_t port) {
  const std::uint32_t to_address = htonl(address.value);
  const std::uint16_t to_port = htons(port);
  NetlinkAttributes data;
  data.add_be32(NFTA_NAT_TYPE, NFT_NAT_DNAT);
  data.add_be32(NFTA_NAT_FAMILY, NFPROTO_IPV4);
  data.add_be32(NFTA_NAT_REG_ADDR_MIN, NFT_REG_1);
  data.add_be32(NFTA_NAT_REG_PROTO_MIN, NFT_REG_2);
  data.add_be32(NFTA_NAT_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
  return sequence({immediate(NFT_REG_1, data_value(raw(to_address))),
                   immediate(NFT_REG_2, data_value(raw(to_port))), named("nat", data)});
}
Expression masquerade() { return named("masq", {}); }
Expression reset_connection() { return reject(NFT_REJECT_TCP_RST, 0); }
Expression answer_prohibited() { return reject(NFT_REJECT_ICMP_UNREACH, ICMP_PKT_FILTERED); }

}  // namespace nft

std::vector<AddressRange> merge_ranges(std::span<const Cidr4> blocks) {
  std::vector<AddressRange> all;
  for (const Cidr4& block : blocks) {
    const std::uint32_t size_less_one =
        block.bits == 0 ? ~std::uint32_t(0)
                        : std::uint32_t((std::uint64_t(1) << (32 - block.bits)) - 1);
    all.push_back({block.network.value, block.network.value | size_less_one});
  }
  std::sort(all.begin(), all.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.first < b.first; });
  std::vector<AddressRange> out;
  for (const AddressRange& range : all) {
    if (!out.empty() && std::uint64_t(range.first) <= std::uint64_t(out.back().last) + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

NftBatch::NftBatch(Family family, std::string table) : family_(family), table_(std::move(table)) {}

void NftBatch::switch_to(Family family, std::string table) {
  family_ = family;
  table_ = std::move(table);
}

void NftBatch::add(std::uint16_t type, std::uint16_t flags, const NetlinkAttributes& attributes) {
  pending_.push_back({type, flags, family_, attributes});
}

void NftBatch::add_table() {
  NetlinkAttributes attributes;
  attributes.add_text(NFTA_TABLE_NAME, table_);
  add(NFT_MSG_NEWTABLE, NLM_F_CREATE, attributes);
}

void NftBatch::delete_table() {
  NetlinkAttributes attributes;
  attributes.add_text(NFTA_TABLE_NAME, table_);
  add(NFT_MSG_DELTABLE, 0, attributes);
}

void NftBatch::add_chain(const std::string& name) {
  NetlinkAttributes attributes;
  attributes.add_text(NFTA_CHAIN_TABLE, table_);
  attributes.add_text(NFTA_CHAIN_NAME, name);
  add(NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL, attributes);
}

void NftBatch::add_base_chain(const std::string& name, const Hook& hook) {
  NetlinkAttributes where;
  where.add_be32(NFTA_HOOK_HOOKNUM, hook.number);
  where.add_be32(NFTA_HOOK_PRIORITY, std::uint32_t(hook.priority));
  NetlinkAttributes attributes;
  attributes.add_text(NFTA_CHAIN_TABLE, table_);
  attributes.add_text(NFTA_CHAIN_NAME, name);
  attributes.add_nested(NFTA_CHAIN_HOOK, where);
  attributes.add_be32(NFTA_CHAIN_POLICY, std::uint32_t(hook.policy));
  attributes.add_text(NFTA_CHAIN_TYPE, hook.type);
  add(NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL, attributes);
}

void NftBatch::delete_chain(const std::string& name) {
  NetlinkAttributes attributes;
  attributes.add_text(NFTA_CHAIN_TABLE, table_);
  attributes.add_text(NFTA_CHAIN_NAME, name);
  add(NFT_MSG_DELCHAIN, 0, attributes);
}

void NftBatch::rule(const std::string& chain, std::initializer_list<nft::Expression> expressions) {
  NetlinkAttributes attributes;
  attributes.add_text(NFTA_RULE_TABLE, table_);
  attributes.add_text(NFTA_RULE_CHAIN, chain);
  attributes.add_nested(NFTA_RULE_EXPRESSIONS, sequence(expressions));
  add(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, attributes);
}

std::uint32_t NftBatch::add_set(const std::string& name, const SetType& type) {
  const std::uint32_t id = ++last_set_;
  NetlinkAttributes attributes;
  attributes.add_text(NFTA_SET_TABLE, table_);
  attributes.add_text(NFTA_SET_NAME, name);
  attributes.add_be32(NFTA_SET_FLAGS, type.flags);
  attributes.add_be32(NFTA_SET_KEY_TYPE, type.pair ? kTypePair : kTypeIpv4);
  attributes.add_be32(NFTA_SET_KEY_LEN, sizeof(std::uint32_t) * (type.pair ? 2 : 1));
  if ((type.flags & NFT_SET_MAP) != 0) {
    attributes.add_be32(NFTA_SET_DATA_TYPE, type.data_type);
    attributes.add_be32(NFTA_SET_DATA_LEN, type.data_bytes);
  }
  attributes.add_be32(NFTA_SET_ID, id);
  if (type.size != 0) {
    NetlinkAttributes description;
    description.add_be32(NFTA_SET_DESC_SIZE, type.size);
    attributes.add_nested(NFTA_SET_DESC, description);
  }
  add(NFT_MSG_NEWSET, NLM_F_CREATE | NLM_F_EXCL, attributes);
  return id;
}

void NftBatch::elements(std::uint16_t type, const std::string& set, std::uint32_t id,
                        const NetlinkAttributes& list) {
  NetlinkAttributes attributes;
  attributes.add_text(NFTA_SET_ELEM_LIST_TABLE, table_);
  attributes.add_text(NFTA_SET_ELEM_LIST_SET, set);
  if (id != 0) attributes.add_be32(NFTA_SET_ELEM_LIST_SET_ID, id);
  attributes.add_nested(NFTA_SET_ELEM_LIST_ELEMENTS, list);
  add(type, type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE | NLM_F_EXCL : 0, attributes);
}

// A range is its first address and, flagged as an end, the address behind its last.
void NftBatch::add_ranges(const std::string& set, std::uint32_t id,
                          std::span<const AddressRange> ranges) {
  NetlinkAttributes list;
  for (const AddressRange& range : ranges) {
    append(list, element(range.first, nullptr, 0));
    if (range.last != ~std::uint32_t(0))
      append(list, element(range.last + 1, nullptr, NFT_SET_ELEM_INTERVAL_END));
  }
  elements(NFT_MSG_NEWSETELEM, set, id, list);
}

void NftBatch::add_range_set(const std::string& name, std::span<const AddressRange> ranges) {
  const std::uint32_t id = add_set(name, {NFT_SET_INTERVAL | NFT_SET_CONSTANT});
  add_ranges(name, id, ranges);
}

std::uint32_t NftBatch::add_unnamed_range_set(std::span<const AddressRange> ranges) {
  const std::uint32_t id =
      add_set("__set%d", {NFT_SET_ANONYMOUS | NFT_SET_CONSTANT | NFT_SET_INTERVAL});
  add_ranges("__set%d", id, ranges);
  return id;
}

void NftBatch::add_counter_set(const std::string& name, std::uint32_t size) {
  SetType type;
  type.flags = NFT_SET_EVAL;
  type.size = size;
  add_set(name, type);
}
void NftBatch::add_mark_map(const std::string& name) {
  add_set(name, {NFT_SET_MAP, kTypeMark, sizeof(std::uint32_t)});
}
void NftBatch::add_verdict_map(const std::string& name) {
  add_set(name, {NFT_SET_MAP, NFT_DATA_VERDICT});
}

void NftBatch::add_pair_set(const std::string& name) {
  SetType type;
  type.pair = true;
  add_set(name, type);
}
void NftBatch::add_pair(const std::string& set, Ipv4 address, std::uint32_t mark) {
  elements(NFT_MSG_NEWSETELEM, set, 0, pair_element(address, mark));
}
void NftBatch::delete_pair(const std::string& set, Ipv4 address, std::uint32_t mark) {
  elements(NFT_MSG_DELSETELEM, set, 0, pair_element(address, mark));
}

void NftBatch::add_mark(const std::string& map, Ipv4 key, std::uint32_t mark) {
  const NetlinkAttributes data = data_value(raw(mark));
  elements(NFT_MSG_NEWSETELEM, map, 0, element(key.value, &data, 0));
}
void NftBatch::add_go_to(const std::string& map, Ipv4 key, const std::string& chain) {
  const NetlinkAttributes data = data_verdict(NFT_GOTO, chain);
  elements(NFT_MSG_NEWSETELEM, map, 0, element(key.value, &data, 0));
}
void NftBatch::delete_element(const std::string& map, Ipv4 key) {
  elements(NFT_MSG_DELSETELEM, map, 0, element(key.value, nullptr, 0));
}

sys::NetlinkBatch NftBatch::finish() && {
  sys::NetlinkBatch out;
  out.add(NFNL_MSG_BATCH_BEGIN, 0, family_header(AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const Pending& message = pending_[i];
    // The answer to the last one says that the whole was taken.
    const std::uint16_t ask = i + 1 == pending_.size() ? NLM_F_ACK : 0;
    out.add(message_type(message.type), std::uint16_t(message.flags | ask),
            family_header(std::uint8_t(message.family)), message.attributes);
  }
  out.add(NFNL_MSG_BATCH_END, 0, family_header(AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
  return out;
}

sys::NetlinkBatch dump_elements(NftBatch::Family family, const std::string& table,
                                const std::string& map) {
  NetlinkAttributes attributes;
  attributes.add_text(NFTA_SET_ELEM_LIST_TABLE, table);
  attributes.add_text(NFTA_SET_ELEM_LIST_SET, map);
  sys::NetlinkBatch out;
  out.add(message_type(NFT_MSG_GETSETELEM), NLM_F_DUMP, family_header(std::uint8_t(family)),
          attributes);
  return out;
}

std::vector<MarkElement> parse_marks(std::span<const std::byte> body) {
  const auto word = [](std::span<const std::byte> nested) -> std::uint32_t {
    for (const auto& attribute : sys::read_attributes(nested)) {
      if (attribute.type != NFTA_DATA_VALUE || attribute.value.size() != sizeof(std::uint32_t))
        continue;
      std::uint32_t value = 0;
      std::memcpy(&value, attribute.value.data(), sizeof(value));
      return value;
    }
    return 0;
  };
  std::vector<MarkElement> out;
  if (body.size() < sizeof(nfgenmsg)) return out;
  for (const auto& list : sys::read_attributes(body.subspan(sizeof(nfgenmsg)))) {
    if (list.type != NFTA_SET_ELEM_LIST_ELEMENTS) continue;
    for (const auto& one : sys::read_attributes(list.value)) {
      MarkElement found;
      for (const auto& part : sys::read_attributes(one.value)) {
        if (part.type == NFTA_SET_ELEM_KEY) found.key.value = ntohl(word(part.value));
        if (part.type == NFTA_SET_ELEM_DATA) found.mark = word(part.value);
      }
      out.push_back(found);
    }
  }
  return out;
}

}  // namespace atl::jail
