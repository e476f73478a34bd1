#include "runtime/jail/network_rules.h"

#include <gtest/gtest.h>

#include "runtime/jail/ranges.h"

namespace atl::jail {
namespace {

using runtime::Intercept;
using runtime::NetworkPolicy;

std::vector<Cidr4> blocks(std::initializer_list<const char*> texts) {
  std::vector<Cidr4> out;
  for (const char* text : texts) out.push_back(*Cidr4::parse(text));
  return out;
}

using Ranges32 = std::vector<AddressRange>;

TEST(MergeRanges, SortedAndApart) {
  EXPECT_EQ(merge_ranges(blocks({})), Ranges32{});
  EXPECT_EQ(merge_ranges(blocks({"10.0.0.0/8"})), (Ranges32{{0x0a000000, 0x0affffff}}));
  EXPECT_EQ(merge_ranges(blocks({"1.1.1.1", "1.1.1.0", "1.1.1.3"})),
            (Ranges32{{0x01010100, 0x01010101}, {0x01010103, 0x01010103}}));
  EXPECT_EQ(merge_ranges(blocks({"9.0.0.0/8", "8.8.8.8", "8.0.0.0/8", "8.8.8.8"})),
            (Ranges32{{0x08000000, 0x09ffffff}}));
  EXPECT_EQ(merge_ranges(blocks({"128.0.0.0/1", "0.0.0.0/1"})), (Ranges32{{0, 0xffffffff}}));
  EXPECT_EQ(merge_ranges(blocks({"255.255.255.255", "0.0.0.0/0", "1.2.3.4"})),
            (Ranges32{{0, 0xffffffff}}));
  EXPECT_EQ(merge_ranges(blocks({"255.255.255.255"})), (Ranges32{{0xffffffff, 0xffffffff}}));
}

TEST(Rights, OfPolicies) {
  const auto rights = [](std::initializer_list<const char*> allow,
                         std::initializer_list<const char*> deny,
                         Intercept intercept = Intercept::none) {
    return rights_of(NetworkPolicy{blocks(allow), blocks(deny), intercept});
  };
  EXPECT_EQ(rights({}, {}), kMember | kOpen);
  EXPECT_EQ(rights({"1.1.1.1"}, {}), kMember | kOpen);
  EXPECT_EQ(rights({"0.0.0.0/0"}, {"8.8.8.8"}), kMember | kOpen);
  EXPECT_EQ(rights({}, {"0.0.0.0/0"}), kMember);
  EXPECT_EQ(rights({}, {"0.0.0.0/1", "128.0.0.0/1"}), kMember);
  EXPECT_EQ(rights({"1.1.1.1"}, {"0.0.0.0/0"}), kMember | kListed);
  EXPECT_EQ(rights({}, {"8.8.8.8"}), kMember | kListed);
  EXPECT_EQ(rights({}, {"0.0.0.0/0"}, Intercept::web), kMember | kWebProxy);
  EXPECT_EQ(rights({}, {}, Intercept::tcp), kMember | kOpen | kTcpProxy);
}

TEST(Addresses, AreApartAndNeverReachable) {
  EXPECT_EQ(sandbox_address(kFirstSlot).str(), "198.18.39.16");
  EXPECT_EQ(sandbox_address(kEndSlot - 1).str(), "198.18.234.95");
  EXPECT_EQ(kGateway.str(), "198.18.0.1");
  EXPECT_LT(kGateway, sandbox_address(kFirstSlot));
  const Link first{kFirstLink};
  const Link last{kEndLink - 1};
  EXPECT_EQ(first.host().str(), "198.19.0.5");
  EXPECT_EQ(first.router().str(), "198.19.0.6");
  EXPECT_EQ(last.router().str(), "198.19.255.254");
  for (Ipv4 address : {sandbox_address(kFirstSlot), sandbox_address(kEndSlot - 1), kGateway,
                       first.host(), last.router()}) {
    EXPECT_TRUE(is_never_reachable(address)) << address.str();
  }
  EXPECT_LE(last.name().size(), 15u) << "an interface's name";
}

// The size of a transaction does not depend on how many sandboxes there are; a plain policy is two
// elements.
TEST(Transactions, AreSmall) {
  EXPECT_EQ(install_policy(kFirstSlot, {}, 0x100, 0).count(), 4u);  // begin, two elements, end
  EXPECT_EQ(install_policy(kFirstSlot, {}, 0x200, 0x100 | kMember).count(), 6u);
  EXPECT_EQ(remove_policy(kFirstSlot, 0x100 | kMember | kOpen).count(), 4u);
  NetworkPolicy lists{blocks({"1.1.1.1"}), blocks({"8.0.0.0/8"}), Intercept::none};
  const std::size_t fresh = install_policy(kFirstSlot, lists, 0x100, 0).count();
  EXPECT_EQ(install_policy(kFirstSlot, lists, 0x100, 0x100 | kMember | kListed).count(), fresh + 4);
  for (int i = 0; i < 100; ++i) lists.allow.push_back({Ipv4{0x02000000u + unsigned(i) * 2}, 32});
  EXPECT_EQ(install_policy(kFirstSlot, lists, 0x100, 0).count(), fresh);
}

}  // namespace
}  // namespace atl::jail
