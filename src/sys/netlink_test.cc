#include "sys/netlink.h"

#include <gtest/gtest.h>
#include <linux/netlink.h>

#include <cstring>

namespace atl::sys {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(NetlinkAttributes, ComeOutAsTheyWentIn) {
  NetlinkAttributes inner;
  inner.add_text(7, "abc");
  inner.add_be32(8, 0x01020304);
  NetlinkAttributes outer;
  outer.add_u8(1, 5);
  outer.add_nested(2, inner);
  outer.add_u32(3, 9);
  EXPECT_EQ(outer.bytes().size() % 4, 0u);
  const auto read = read_attributes(outer.bytes());
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0].type, 1);
  EXPECT_EQ(text_of(read[0].value), "\x05");
  EXPECT_EQ(read[1].type, 2) << "without the flag of nested ones";
  const auto nested = read_attributes(read[1].value);
  ASSERT_EQ(nested.size(), 2u);
  EXPECT_EQ(text_of(nested[0].value), std::string("abc\0", 4));
  EXPECT_EQ(text_of(nested[1].value), std::string("\1\2\3\4", 4));
  std::uint32_t nine = 0;
  std::memcpy(&nine, read[2].value.data(), sizeof(nine));
  EXPECT_EQ(nine, 9u);
}

TEST(NetlinkAttributes, WhatIsCutOffIsLeftOut) {
  NetlinkAttributes all;
  all.add_u32(1, 1);
  all.add_text(2, "0123456789");
  const std::span<const std::byte> bytes(all.bytes());
  for (std::size_t size = 0; size <= bytes.size(); ++size)
    EXPECT_LE(read_attributes(bytes.first(size)).size(), 2u) << size;
  EXPECT_EQ(read_attributes(bytes.first(bytes.size() - 4)).size(), 1u);
  // Lengths that lie.
  for (std::uint16_t length : {std::uint16_t(0), std::uint16_t(3), std::uint16_t(65535)}) {
    std::vector<std::byte> broken(bytes.begin(), bytes.end());
    std::memcpy(broken.data(), &length, sizeof(length));
    EXPECT_TRUE(read_attributes(broken).empty()) << length;
  }
}

TEST(NetlinkSocket, ErrorsOfTheKernelAreTold) {
  auto socket = NetlinkSocket::open(NETLINK_ROUTE);
  ASSERT_TRUE(socket.ok()) << socket.error().message;
  NetlinkBatch batch;
  batch.add(0xfff, NLM_F_ACK, std::uint32_t(0));  // no such request
  EXPECT_FALSE(socket->send(batch).ok());
}

}  // namespace
}  // namespace atl::sys
