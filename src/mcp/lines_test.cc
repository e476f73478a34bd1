#include "mcp/lines.h"

#include <gtest/gtest.h>

#include "base/encoding.h"
#include "mcp/grep_output.h"

namespace atl::mcp {
namespace {

LinePicker pick(std::string_view text, std::int64_t offset, std::int64_t limit, std::size_t cap,
                std::size_t piece) {
  LinePicker lines(offset, limit, cap);
  for (std::size_t at = 0; at < text.size(); at += piece) lines.feed(text.substr(at, piece));
  lines.finish();
  return lines;
}

TEST(Lines, ASelectionWithItsLineEnds) {
  const std::string text = "zero\r\none\n\nthree";
  for (const std::size_t piece : {1, 3, 100}) {
    EXPECT_EQ(pick(text, 0, 2000, 1000, piece).text(), text);
    EXPECT_EQ(pick(text, 1, 2, 1000, piece).text(), "one\n\n");
    EXPECT_EQ(pick(text, 3, 9, 1000, piece).text(), "three");
    EXPECT_EQ(pick(text, 4, 9, 1000, piece).text(), "");
    EXPECT_EQ(pick(text, 0, 1, 1000, piece).total(), 4);
    EXPECT_EQ(pick(text, 1, 2, 1000, piece).lines(), 2);
  }
  EXPECT_EQ(pick("", 0, 10, 100, 1).total(), 0);
  EXPECT_EQ(pick("\n", 0, 10, 100, 1).total(), 1);
}

TEST(Lines, TheCapEndsASelectionAtALine) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "123456789\n";
  const LinePicker lines = pick(text, 10, 1000, 55, 7);
  EXPECT_EQ(lines.lines(), 5);
  EXPECT_TRUE(lines.full());
  EXPECT_EQ(lines.total(), 100);
  EXPECT_EQ(lines.omitted(), 0u);
}

TEST(Lines, ALineThatIsTooLongIsCut) {
  const std::string text = "a\n" + std::string(100'000, 'x') + "END\nlast\n";
  for (const std::size_t piece : {13, 5000, 200'000}) {
    const LinePicker lines = pick(text, 1, 5, 1000, piece);
    EXPECT_EQ(lines.lines(), 1);
    EXPECT_EQ(lines.total(), 3);
    EXPECT_EQ(lines.omitted(), 100'004u - 1000u);
    EXPECT_LT(lines.text().size(), 1200u);
    EXPECT_NE(lines.text().find("99004 bytes left out"), std::string::npos) << lines.text();
    EXPECT_TRUE(lines.text().ends_with("xEND\n"));
  }
}

TEST(Lines, TextAndOtherBytes) {
  EXPECT_FALSE(looks_binary(""));
  EXPECT_FALSE(looks_binary("plain\ttext\n\x1b[31mred"));
  EXPECT_FALSE(
      looks_binary("gr\xC3\xBC\xC3\x9F"
                   "e"));
  EXPECT_FALSE(
      looks_binary("Latin-1: gr\xFC\xDF"
                   "e aus M\xFCnchen"));
  EXPECT_FALSE(looks_binary("cut off \xE2\x82"));
  EXPECT_TRUE(looks_binary(std::string_view("a\0b", 3)));
  EXPECT_TRUE(looks_binary("\x1F\x8B\x08\x01\x02\x90\xF0\xF1\xF2\xAA\xBB\xCC\xDD"));
  EXPECT_EQ(mime_type_of("\x89PNG\r\n\x1a\n"), "image/png");
  EXPECT_EQ(mime_type_of("RIFF1234WEBP"), "image/webp");
  EXPECT_EQ(mime_type_of("?"), "application/octet-stream");
}

TEST(Lines, Occurrences) {
  EXPECT_EQ(count_occurrences("abcabc", "abc").count, 2u);
  EXPECT_EQ(count_occurrences("xabc", "abc").first, 1u);
  EXPECT_EQ(count_occurrences("aaa", "aa").count, 2u);  // overlapping: which one is not clear
  EXPECT_EQ(count_occurrences("abc", "abcd").count, 0u);
  EXPECT_EQ(count_occurrences("aabaabaaab", "aabaaab").first, 3u);
  EXPECT_EQ(count_occurrences("ababababab", "abab").count, 4u);
}

TEST(Lines, OccurrencesOfWhatRepeatsItself) {
  const std::string text(2'000'000, 'a');
  const std::string half(1'000'000, 'a');
  EXPECT_EQ(count_occurrences(text, half).count, 1'000'001u);
  EXPECT_EQ(count_occurrences(text, half + "b").count, 0u);
  EXPECT_EQ(count_occurrences(text + "b", half + "b").first, 1'000'000u);
}

TEST(GrepOutput, NamesMayHaveAnythingInThem) {
  const std::string output = std::string("a:1:b\nc") + '\0' + "12:x:y\n" + "d" + '\0' + "7:\r\n" +
                             "half" + '\0' + "3:no end";
  const auto matches = parse_grep(output);
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].file, "a:1:b\nc");
  EXPECT_EQ(matches[0].line, 12);
  EXPECT_EQ(matches[0].text, "x:y");
  EXPECT_EQ(matches[1].text, "");
  EXPECT_TRUE(parse_grep("Binary file x matches\n").empty());
  EXPECT_TRUE(parse_grep(std::string("f") + '\0' + "no number\n").empty());
}

TEST(GrepOutput, Listings) {
  const std::string output =
      std::string("1700000000.5 a b\nc") + '\0' + "12 d" + '\0' + "bad" + '\0' + "9 cut off";
  const auto files = parse_find(output);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, "a b\nc");
  EXPECT_DOUBLE_EQ(files[0].modified, 1700000000.5);
  EXPECT_EQ(files[1].path, "d");
}

}  // namespace
}  // namespace atl::mcp
