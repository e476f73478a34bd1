#include "runtime/jail/mark.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/jail/faults.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

class MarkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/atoll-mark-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    path_ = name;
    dir_ = *sys::open_trusted(path_, O_RDONLY | O_DIRECTORY);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::string path_;
  sys::UniqueFd dir_;
};

TEST_F(MarkTest, WrittenReadAndRemoved) {
  EXPECT_EQ(*read_mark(dir_), std::nullopt);
  ASSERT_TRUE(write_mark(dir_, {10023}).ok());
  EXPECT_EQ(*read_mark(dir_), Mark{10023});
  EXPECT_FALSE(write_mark(dir_, {1}).ok()) << "never replaced";
  EXPECT_EQ(*read_mark(dir_), Mark{10023});
  // Nothing but the mark is left of the writing.
  EXPECT_EQ(sys::list_dir(dir_)->size(), 1u);
  ASSERT_TRUE(remove_mark(dir_).ok());
  ASSERT_TRUE(remove_mark(dir_).ok()) << "fine if there is none";
  EXPECT_EQ(*read_mark(dir_), std::nullopt);
}

TEST_F(MarkTest, RubbishIsAnError) {
  for (const char* text : {"", "slot", "slot \n", "slot x\n", "slot 1", "slot 1\nmore\n",
                           "Slot 1\n", "slot 99999999999\n", "slot -1\n"}) {
    EXPECT_FALSE(parse_mark(text).ok()) << text;
    std::ofstream(path_ + "/" + kMarkName) << text;
    EXPECT_FALSE(read_mark(dir_).ok()) << text;
  }
  EXPECT_EQ(*parse_mark(to_text({59999})), Mark{59999});
}

TEST(Faults, NamesOfMoments) {
  const Faults none;
  EXPECT_TRUE(none.before("clone").ok());
  const Faults fails{"clone", ""};
  EXPECT_TRUE(fails.before("ids").ok());
  EXPECT_EQ(fails.before("clone").error().sys_errno, EIO);
  const Faults dies{"", "disk.mount+"};
  EXPECT_FALSE(dies.dies_before("disk.mount"));
  EXPECT_TRUE(dies.dies_after("disk.mount"));
  EXPECT_FALSE(dies.dies_after("disk"));
  EXPECT_FALSE(dies.dies_after("disk.mount+"));
  EXPECT_EXIT((void)(Faults{"", "clone"}.before("clone")), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT((Faults{"", "clone+"}.after("clone")), ::testing::KilledBySignal(SIGKILL), "");
}

}  // namespace
}  // namespace atl::jail
