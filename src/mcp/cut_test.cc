#include "mcp/cut.h"

#include <gtest/gtest.h>

#include "base/encoding.h"

namespace atl::mcp {
namespace {

TEST(Cut, ShortTextsStay) {
  EXPECT_EQ(cut_middle("abc", 3, "x"), "abc");
  EXPECT_EQ(cut_middle("", 0, "x"), "");
  EXPECT_EQ(cut_middle("ab", "cd", 0, 10, "x"), "abcd");
}

TEST(Cut, TheMiddleGoesAndTheNoteSaysHowMuch) {
  const std::string text = std::string(50, 'a') + std::string(100, 'b') + std::string(50, 'c');
  const std::string cut = cut_middle(text, 100, "read the file");
  EXPECT_EQ(cut, std::string(50, 'a') + "\n[... 100 bytes left out; read the file ...]\n" +
                     std::string(50, 'c'));
}

TEST(Cut, CharactersStayWhole) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\xE2\x82\xAC";
  for (std::size_t limit = 1; limit < 40; ++limit) {
    const std::string cut = cut_middle(text, limit, "");
    EXPECT_TRUE(is_valid_utf8(cut)) << limit;
    EXPECT_LE(cut.size(), limit + 40);
  }
}

TEST(Cut, WhatWasLostBeforeIsCounted) {
  EXPECT_EQ(cut_middle("aaaa", "bbbb", 92, 4, ""), "aa\n[... 96 bytes left out ...]\nbb");
}

TEST(Cut, BytesBecomeText) {
  EXPECT_EQ(to_utf8("gr\xFC\xDF"
                    "e"),
            "gr\xEF\xBF\xBD\xEF\xBF\xBD"
            "e");
  EXPECT_EQ(to_utf8("\xE2\x82"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(to_utf8("\xE2\x82\xAC\xFF\xF0"), "\xE2\x82\xAC\xEF\xBF\xBD\xEF\xBF\xBD");
  std::string all;
  for (int i = 0; i < 256; ++i) all += char(i);
  EXPECT_TRUE(is_valid_utf8(to_utf8(all + all)));
}

TEST(Cut, Sizes) {
  EXPECT_EQ(readable_size(12), "12 bytes");
  EXPECT_EQ(readable_size(1536), "1.5 KiB");
  EXPECT_EQ(readable_size(3ULL << 30), "3.0 GiB");
}

}  // namespace
}  // namespace atl::mcp
