// Netlink: requests to the kernel's routing and firewall, encoded as bytes and sent in batches.
//
// A NetlinkBatch is pure data: messages one behind the other, each a header, a fixed part and
// attributes (type, length, value; nested ones hold attributes). A NetlinkSocket belongs to the
// network namespace in which it was opened, wherever the process goes later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

// Attributes, as they stand in a message.
class NetlinkAttributes {
 public:
  void add(std::uint16_t type, std::span<const std::byte> value);
  void add_text(std::uint16_t type, std::string_view text);  // with its NUL
  void add_u8(std::uint16_t type, std::uint8_t value);
  void add_u32(std::uint16_t type, std::uint32_t value);   // in host order
  void add_be32(std::uint16_t type, std::uint32_t value);  // in network order
  void add_nested(std::uint16_t type, const NetlinkAttributes& inner);
  // What the kernel wants between the header of a nested attribute and its attributes, rarely.
  void add_raw(std::span<const std::byte> bytes);
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class NetlinkBatch {
 public:
  // `flags` without NLM_F_REQUEST, which is implied. Preconditions: the attributes of one message
  // stay below 64 KiB where they are nested.
  void add(std::uint16_t type, std::uint16_t flags, std::span<const std::byte> fixed,
           const NetlinkAttributes& attributes);
  template <class Fixed>
  void add(std::uint16_t type, std::uint16_t flags, const Fixed& fixed,
           const NetlinkAttributes& attributes = {}) {
    static_assert(std::is_trivially_copyable_v<Fixed>);
    add(type, flags, std::as_bytes(std::span(&fixed, 1)), attributes);
  }
  bool empty() const { return bytes_.empty(); }
  std::size_t count() const { return count_; }

 private:
  friend class NetlinkSocket;
  std::vector<std::byte> bytes_;
  std::size_t count_ = 0;
};

// One attribute of a message from the kernel; nested ones are read by another AttributeReader.
struct NetlinkAttribute {
  std::uint16_t type = 0;  // without the flag bits
  std::span<const std::byte> value;
};
// All attributes in these bytes; what is cut off at the end is left out.
std::vector<NetlinkAttribute> read_attributes(std::span<const std::byte> bytes);

class NetlinkSocket {
 public:
  // In the caller's network namespace. `protocol`: NETLINK_ROUTE, NETLINK_NETFILTER.
  static Result<NetlinkSocket> open(int protocol);

  // Sends all messages at once and waits for the kernel's answer to the last one that asks for it
  // (NLM_F_ACK). The error is that of the first message that failed.
  Result<void> send(const NetlinkBatch& batch);
  // Sends one dump request and calls `each` with type and body (behind the header) of every answer.
  Result<void> dump(const NetlinkBatch& batch,
                    const std::function<void(std::uint16_t, std::span<const std::byte>)>& each);

 private:
  explicit NetlinkSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  Result<void> transmit(const NetlinkBatch& batch, std::uint32_t first_sequence);
  UniqueFd fd_;
  std::uint32_t sequence_ = 0;
};

}  // namespace atl::sys
