#include "cli/table.h"

#include <gtest/gtest.h>

#include "cli/sandbox.h"

namespace atl::cli {
namespace {

using std::chrono::seconds;

TEST(Table, AlignsByCharacters) {
  Table table({"ID", "NAME"});
  table.add({"a", "x"});
  table.add({"äöü", "y"});
  EXPECT_EQ(table.aligned(), "ID   NAME\na    x\näöü  y\n");
  EXPECT_EQ(table.plain(), "a\tx\näöü\ty\n");
}

TEST(Duration, Parses) {
  EXPECT_EQ(parse_duration("90"), seconds(90));
  EXPECT_EQ(parse_duration("90s"), seconds(90));
  EXPECT_EQ(parse_duration("15m"), seconds(900));
  EXPECT_EQ(parse_duration("2h"), seconds(7200));
  EXPECT_EQ(parse_duration("7d"), seconds(604800));
  for (const char* bad : {"", "h", "-1s", "1w", "1 h", "1.5h", "99999999999"})
    EXPECT_FALSE(parse_duration(bad)) << bad;
}

TEST(Duration, Shows) {
  EXPECT_EQ(show_duration(seconds(42)), "42s");
  EXPECT_EQ(show_duration(seconds(192)), "3m 12s");
  EXPECT_EQ(show_duration(seconds(-7380)), "-2h 3m");
  EXPECT_EQ(show_duration(seconds(187200)), "2d 4h");
}

TEST(Printable, HidesControlCharacters) {
  EXPECT_EQ(printable("a\x1b[2Jb\nc\td"), "a\\x1b[2Jb\\x0ac d");
  EXPECT_EQ(printable("grün"), "grün");
}

TEST(Pairs, NeedAKey) {
  EXPECT_EQ(split_pair("A=b=c")->second, "b=c");
  EXPECT_FALSE(split_pair("=x").ok());
  EXPECT_FALSE(split_pair("x").ok());
}

}  // namespace
}  // namespace atl::cli
