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

const std::string kOne = "s0123456789abcdefghij";
const std::string kTwo = "szyxwvutsrqponmlkjihg";

TEST_F(MarkTest, DisksAndLayers) {
  const Mark mark{10023, 10024, {{kOne, false}, {kTwo, true}}};
  EXPECT_EQ(to_text(mark), "slot 10023\ndisk 10024\nlayer " + kOne + "\nflat " + kTwo + "\n");
  EXPECT_EQ(*parse_mark(to_text(mark)), mark);
  EXPECT_EQ(mark.files_slot(), 10024u);
  EXPECT_EQ(Mark{10023}.files_slot(), 10023u);
  EXPECT_EQ(*parse_mark("slot 10023\n"), Mark{10023}) << "as before there were layers";

  ASSERT_TRUE(write_mark(dir_, {1}).ok());
  ASSERT_TRUE(replace_mark(dir_, mark).ok());
  EXPECT_EQ(*read_mark(dir_), mark);
  EXPECT_EQ(sys::list_dir(dir_)->size(), 1u);

  Mark longest{1, 0, std::vector<LayerRef>(kMaxLayers, {kOne, false})};
  EXPECT_EQ(*parse_mark(to_text(longest)), longest);
  longest.layers.push_back({kOne, false});
  EXPECT_FALSE(parse_mark(to_text(longest)).ok());
}

TEST_F(MarkTest, RubbishIsAnError) {
  const std::string after_flat = "slot 1\nflat " + kOne + "\nlayer " + kTwo + "\n";
  const std::string unended = "slot 1\nlayer " + kOne;
  for (const char* text :
       {"", "slot", "slot \n", "slot x\n", "slot 1", "slot 1\nmore\n", "Slot 1\n",
        "slot 99999999999\n", "slot -1\n", "slot 1\n\n", "slot 1\ndisk 0\n", "slot 1\ndisk x\n",
        "slot 1\nlayer ../../etc\n", "slot 1\nlayer \n", "slot 1\nlayer s\n", after_flat.c_str(),
        unended.c_str()}) {
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
