#include "mcp/glob.h"

#include <gtest/gtest.h>

#include <chrono>

namespace atl::mcp {
namespace {

bool fits(std::string_view pattern, std::string_view path) {
  auto glob = Glob::compile(pattern);
  EXPECT_TRUE(glob.ok()) << pattern;
  return glob.ok() && glob->matches(path);
}

TEST(Glob, WithinAName) {
  EXPECT_TRUE(fits("*.py", "a.py"));
  EXPECT_TRUE(fits("*", "a"));
  EXPECT_TRUE(fits("a*b*c", "a-b-b-c"));
  EXPECT_TRUE(fits("a?c", "abc"));
  EXPECT_TRUE(fits("a?c",
                   "a\xE2\x82\xAC"
                   "c"));  // one character, three bytes
  EXPECT_FALSE(fits("*.py", "d/a.py"));
  EXPECT_FALSE(fits("a?c", "ac"));
  EXPECT_FALSE(fits("a?c", "a/c"));
  EXPECT_FALSE(fits("*.py", "a.pyc"));
}

TEST(Glob, Sets) {
  EXPECT_TRUE(fits("[abc].txt", "b.txt"));
  EXPECT_TRUE(fits("[a-c0-9]x", "7x"));
  EXPECT_TRUE(fits("[!a-c]x", "dx"));
  EXPECT_TRUE(fits("[^a]x", "dx"));
  EXPECT_TRUE(fits("[]a]x", "]x"));
  EXPECT_TRUE(fits("[a-]x", "-x"));
  EXPECT_TRUE(fits("[\xC3\xA4-\xC3\xBC]", "\xC3\xB6"));
  EXPECT_FALSE(fits("[!a-c]x", "bx"));
  EXPECT_FALSE(fits("[a-c]x", "dx"));
  EXPECT_TRUE(fits("[\\]]x", "]x"));
}

TEST(Glob, AnyNumberOfDirectories) {
  EXPECT_TRUE(fits("**/x", "x"));
  EXPECT_TRUE(fits("**/x", "a/x"));
  EXPECT_TRUE(fits("**/x", "a/b/c/x"));
  EXPECT_TRUE(fits("**", "a/b/c"));
  EXPECT_TRUE(fits("a/**/z.c", "a/z.c"));
  EXPECT_TRUE(fits("a/**/z.c", "a/b/c/z.c"));
  EXPECT_TRUE(fits("a/**", "a/b"));
  EXPECT_TRUE(fits("**/a/**/b", "x/a/y/z/b"));
  EXPECT_TRUE(fits("**/**/b", "b"));
  EXPECT_FALSE(fits("**/x", "a/xx"));
  EXPECT_FALSE(fits("a/**/z.c", "b/z.c"));
  EXPECT_TRUE(fits("a**b", "axxb"));  // inside a name it is a star
  EXPECT_FALSE(fits("a**b", "a/b"));
}

TEST(Glob, Braces) {
  EXPECT_TRUE(fits("*.{js,ts}", "a.ts"));
  EXPECT_TRUE(fits("{src,test}/**/*.{c,h}", "test/a/b.h"));
  EXPECT_TRUE(fits("{a,b{c,d}}", "bd"));
  EXPECT_TRUE(fits("x{,y}", "x"));
  EXPECT_TRUE(fits("{a/b,c}/d", "a/b/d"));
  EXPECT_TRUE(fits("[{]a", "{a"));
  EXPECT_TRUE(fits("\\{a,b\\}", "{a,b}"));
  EXPECT_FALSE(fits("*.{js,ts}", "a.tsx"));
  auto expanded = expand_braces("{a,b}{1,2}");
  ASSERT_TRUE(expanded.ok());
  EXPECT_EQ(*expanded, (std::vector<std::string>{"a1", "a2", "b1", "b2"}));
}

TEST(Glob, HiddenNamesWantTheirDot) {
  EXPECT_FALSE(fits("*", ".git"));
  EXPECT_FALSE(fits("?git", ".git"));
  EXPECT_FALSE(fits("**/config", ".git/config"));
  EXPECT_FALSE(fits("**", "a/.b"));
  EXPECT_TRUE(fits(".*", ".git"));
  EXPECT_TRUE(fits("**/.env", "a/.env"));
  EXPECT_TRUE(fits(".git/**", ".git/a/b"));
  EXPECT_TRUE(Glob::compile("**/.env")->sees_hidden());
  EXPECT_FALSE(Glob::compile("**/*.x")->sees_hidden());
}

TEST(Glob, OddNames) {
  EXPECT_TRUE(fits("*\n*", "a\nb"));
  EXPECT_TRUE(fits("-*", "-rf"));
  EXPECT_TRUE(fits("\\*", "*"));
  EXPECT_FALSE(fits("\\*", "a"));
  EXPECT_TRUE(fits("*", "\xFF\xFE"));  // no UTF-8
  EXPECT_TRUE(fits("./a", "a"));
  EXPECT_TRUE(fits("a//b", "a/b"));
}

TEST(Glob, WhatIsNoPattern) {
  for (const char* bad : {"", "[a", "a/[b", "{a,b", "x/../y*", "[z-a]"})
    EXPECT_FALSE(Glob::compile(bad).ok()) << bad;
  std::string many;
  for (int i = 0; i < 12; ++i) many += "{a,b}";
  EXPECT_FALSE(Glob::compile(many).ok());
}

TEST(Glob, TimeIsBounded) {
  std::string pattern, path;
  for (int i = 0; i < 200; ++i) pattern += "**/a*a*a*b/", path += "aaaaaaaaaaaaaaaaaaaa/";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(fits(pattern + "z", path + "y"));
  EXPECT_FALSE(fits(std::string(2000, '*') + "?*?*?*?*b", std::string(4000, 'a')));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Glob, DirectoriesBeforeThePattern) {
  const auto split = [](std::string_view pattern) {
    const SplitPattern s = split_literal_prefix(pattern);
    return s.directory + "|" + s.rest;
  };
  EXPECT_EQ(split("*.c"), "|*.c");
  EXPECT_EQ(split("src/x/*.c"), "src/x|*.c");
  EXPECT_EQ(split("/home/user/a*"), "/home/user|a*");
  EXPECT_EQ(split("/*"), "/|*");
  EXPECT_EQ(split("../../etc/*"), "../../etc|*");
  EXPECT_EQ(split("a/b.txt"), "a|b.txt");
  EXPECT_EQ(split("a/{b,c}/d"), "a|{b,c}/d");
}

}  // namespace
}  // namespace atl::mcp
