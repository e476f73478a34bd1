#include "cli/table.h"

#include <gtest/gtest.h>

#include "cli/exec.h"
#include "cli/remote.h"
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

TEST(ExitCode, OfProcessesAndSignals) {
  EXPECT_EQ(exit_code_of(true, 3, "exit status 3"), 3);
  EXPECT_EQ(exit_code_of(false, -1, "signal: killed"), 137);
  EXPECT_EQ(exit_code_of(false, -1, "signal: segmentation fault (core dumped)"), 139);
  EXPECT_EQ(exit_code_of(false, -1, "signal: user defined signal 2"), 140);
  EXPECT_EQ(exit_code_of(false, -1, "signal: signal 34"), 162);
  EXPECT_EQ(exit_code_of(false, -1, "what?"), 1);
}

TEST(Remote, Parses) {
  auto plain = parse_remote("http://127.0.0.1:3000", "k");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(plain->port, 3000);
  EXPECT_FALSE(plain->tls);
  auto secure = parse_remote("https://api.example.test/", "k");
  ASSERT_TRUE(secure.ok());
  EXPECT_EQ(secure->port, 443);
  EXPECT_TRUE(secure->tls);
  auto v6 = parse_remote("http://[::1]:80", "k");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->url(), "http://[::1]:80");
  for (const char* bad : {"", "ftp://x", "http://", "http://x:y", "http://x:70000"})
    EXPECT_FALSE(parse_remote(bad, "k").ok()) << bad;
}

TEST(Pairs, NeedAKey) {
  EXPECT_EQ(split_pair("A=b=c")->second, "b=c");
  EXPECT_FALSE(split_pair("=x").ok());
  EXPECT_FALSE(split_pair("x").ok());
}

}  // namespace
}  // namespace atl::cli
