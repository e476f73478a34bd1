#include "runtime/jail/ranges.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <set>

#include "sys/files.h"

namespace atl::jail {
namespace {

class RangesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "slot files belong to root";
    char name[] = "/tmp/atoll-ranges-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    path_ = name;
  }
  void TearDown() override {
    if (path_.empty()) return;
    auto parent = sys::open_trusted("/tmp", O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(parent.ok());
    EXPECT_TRUE(sys::remove_tree(*parent, path_.substr(5)).ok());
  }
  Ranges open(const std::string& home, const std::string& instance) {
    auto ranges = Ranges::open(path_, home, instance);
    EXPECT_TRUE(ranges.ok());
    return std::move(*ranges);
  }
  std::string path_;
};

TEST_F(RangesTest, ServersNeverShareASlot) {
  Ranges one = open("/", "a");
  Ranges two = open("/", "b");
  std::set<std::uint32_t> slots;
  for (int i = 0; i < 50; ++i) {
    for (Ranges* ranges : {&one, &two}) {
      auto slot = ranges->take("s" + std::to_string(i));
      ASSERT_TRUE(slot.ok()) << slot.error().message;
      EXPECT_GE(*slot, kFirstSlot);
      EXPECT_LT(*slot, kEndSlot);
      EXPECT_TRUE(slots.insert(*slot).second);
    }
  }
  auto mine = one.mine();
  ASSERT_TRUE(mine.ok());
  EXPECT_EQ(mine->size(), 50u);
  for (const TakenSlot& slot : *mine) EXPECT_TRUE(one.give_back(slot.slot).ok());
  EXPECT_EQ(one.mine()->size(), 0u);
  EXPECT_EQ(two.mine()->size(), 50u);
}

TEST_F(RangesTest, ASlotJustFreedIsNotTheNext) {
  Ranges ranges = open("/", "a");
  auto first = ranges.take("s");
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(ranges.give_back(*first).ok());
  auto second = ranges.take("s");
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*first, *second);
}

TEST_F(RangesTest, AKeptSlotIsClaimedAgainOrRefused) {
  Ranges mine = open("/tmp", "a");
  Ranges other = open("/tmp", "b");
  auto slot = mine.take("s");
  ASSERT_TRUE(slot.ok());
  EXPECT_TRUE(mine.claim(*slot, "s").ok()) << "it is ours";
  EXPECT_EQ(mine.claim(*slot, "t").error().code, Errc::failed_precondition);
  EXPECT_EQ(other.claim(*slot, "s").error().code, Errc::failed_precondition);
  ASSERT_TRUE(mine.give_back(*slot).ok());
  EXPECT_TRUE(mine.claim(*slot, "s").ok()) << "free";
  EXPECT_EQ(mine.mine()->size(), 1u);
  for (std::uint32_t bad : {0u, kFirstSlot - 1, kEndSlot})
    EXPECT_EQ(mine.claim(bad, "s").error().code, Errc::data_loss);
}

TEST_F(RangesTest, OrphansAreSwept) {
  Ranges gone = open("/no/such/home", "a");
  Ranges alive = open("/tmp", "a");
  ASSERT_TRUE(gone.take("s").ok());
  ASSERT_TRUE(alive.take("s").ok());
  alive.sweep_orphans();
  EXPECT_EQ(gone.mine()->size(), 0u);
  EXPECT_EQ(alive.mine()->size(), 1u);
}

TEST(RangeOwnerText, RoundTripAndRubbish) {
  const RangeOwner owner{"/var/lib/atoll", "main", "i123"};
  auto parsed = parse_range_owner(to_text(owner));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, owner);
  EXPECT_FALSE(parse_range_owner("").ok());
  EXPECT_FALSE(parse_range_owner("/home\nmain").ok());
  EXPECT_EQ(Ranges::first_id(kFirstSlot), 655360000u);
  EXPECT_LT(std::uint64_t(kEndSlot) * 65536, std::uint64_t(1) << 32);
}

}  // namespace
}  // namespace atl::jail
