#include "agent/multipart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace atl::agent {
namespace {

struct Part {
  std::string name;
  std::optional<std::string> filename;
  std::string data;
  std::size_t pieces = 0;
  bool operator==(const Part& other) const {
    return name == other.name && filename == other.filename && data == other.data;
  }
};

// Parses `body`, given in pieces whose sizes `next_size` says.
template <class NextSize>
Result<std::vector<Part>> parse(std::string_view body, std::string_view boundary,
                                NextSize next_size, std::size_t buffer = 64 * 1024) {
  MultipartParser parser(boundary, buffer);
  std::vector<Part> parts;
  while (true) {
    ATOLL_TRY_ASSIGN(MultipartParser::Event event, parser.next());
    switch (event) {
      case MultipartParser::Event::need_more:
      case MultipartParser::Event::end: {
        const std::span<char> room = parser.room();
        ATOLL_CHECK(!room.empty());
        const std::size_t n = std::min({body.size(), room.size(), std::size_t(next_size())});
        if (body.empty()) {
          ATOLL_TRY(parser.finish());
          return parts;
        }
        std::memcpy(room.data(), body.data(), n);
        body.remove_prefix(n);
        parser.commit(n);
        break;
      }
      case MultipartParser::Event::part_begin:
        parts.push_back({parser.part().name, parser.part().filename, "", 0});
        break;
      case MultipartParser::Event::data:
        EXPECT_FALSE(parser.data().empty());
        parts.back().data += parser.data();
        ++parts.back().pieces;
        break;
      case MultipartParser::Event::part_end:
        break;
    }
  }
}

Result<std::vector<Part>> parse_whole(std::string_view body, std::string_view boundary = "b") {
  return parse(body, boundary, [] { return std::size_t(1) << 20; });
}

constexpr char kTwoFiles[] =
    "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n"
    "Content-Type: text/plain\r\n\r\nhello\r\n--b\r\n"
    "content-disposition: form-data; name=file; filename=\"dir/b.bin\"\r\n\r\n"
    "line\r\n--\r\n--c\r\n-\r\n\r\n--b--\r\nepilogue --b";
const std::vector<Part> kTwoParts = {{"file", "a.txt", "hello"},
                                     {"file", "dir/b.bin", "line\r\n--\r\n--c\r\n-\r\n"}};

TEST(Multipart, ByteByByte) {
  const auto parts = parse(kTwoFiles, "b", [] { return 1; });
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  EXPECT_EQ(*parts, kTwoParts);
}

TEST(Multipart, RandomSplits) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const auto parts = parse(kTwoFiles, "b", [&] { return 1 + random() % 40; });
    ASSERT_TRUE(parts.ok());
    EXPECT_EQ(*parts, kTwoParts);
  }
}

TEST(Multipart, SmallPartsComeInOnePiece) {
  const auto parts = parse(kTwoFiles, "b", [] { return 1; });
  for (const Part& part : *parts) EXPECT_EQ(part.pieces, 1U);
}

TEST(Multipart, LargePartsThroughASmallBuffer) {
  std::mt19937 random(3);
  std::string data(500'000, '\0');
  for (char& c : data) c = "\r\n-bx"[random() % 5];  // full of almost-delimiters
  std::size_t at = 0;
  while ((at = data.find("\r\n--b", at)) != std::string::npos) data[at] = 'x';
  const std::string body =
      "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n" + data +
      "\r\n--b--";
  for (std::size_t step : {100U, 4096U, 70'000U}) {
    const auto parts = parse(body, "b", [&] { return 1 + random() % step; }, 20'000);
    ASSERT_TRUE(parts.ok()) << parts.error().message;
    ASSERT_EQ(parts->size(), 1U);
    EXPECT_TRUE(parts->front().data == data);
    EXPECT_GT(parts->front().pieces, 1U);
  }
}

TEST(Multipart, EdgesOfTheFormat) {
  // Preamble, padding behind the boundary, a part without headers, an empty one, one whose boundary
  // follows its headers at once.
  const auto parts =
      parse_whole("preamble\r\n--b \t\r\n\r\nfirst\r\n--b\r\n\r\n\r\n--b\r\nX-A: 1\r\n\r\n--b--");
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  EXPECT_EQ(*parts,
            (std::vector<Part>{
                {"", std::nullopt, "first"}, {"", std::nullopt, ""}, {"", std::nullopt, ""}}));
  EXPECT_TRUE(parse_whole("--b--")->empty());
}

TEST(Multipart, MalformedBodies) {
  const std::string head = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
  const std::string bad[] = {
      "",
      "no boundary at all",
      head + "data without an end",
      head + "data\r\n--b",
      "--bx\r\n\r\ndata\r\n--b--",
      "--b\r\nno colon\r\n\r\ndata\r\n--b--",
      "--b\r\nA: 1\r\n folded\r\n\r\ndata\r\n--b--",
      "--b\r\nA: " + std::string(20'000, 'x') + "\r\n\r\ndata\r\n--b--",
      "--b" + std::string(1000, ' '),
  };
  for (const std::string& body : bad) {
    const auto parts = parse_whole(body);
    ASSERT_FALSE(parts.ok()) << body.substr(0, 60);
    EXPECT_EQ(parts.error().code, Errc::invalid_argument);
  }
  std::string headers = "--b\r\n";
  for (int i = 0; i < 40; ++i) headers += "A: 1\r\n";
  EXPECT_FALSE(parse_whole(headers + "\r\nx\r\n--b--").ok());
  std::string many;
  for (int i = 0; i < 10'001; ++i) many += "--b\r\n\r\n\r\n";
  EXPECT_FALSE(parse_whole(many + "--b--").ok());
}

TEST(Multipart, HeldBackBytesOfABrokenBody) {
  MultipartParser parser("b");
  const std::string body = "--b\r\n\r\npartial\r\n--";
  std::memcpy(parser.room().data(), body.data(), body.size());
  parser.commit(body.size());
  EXPECT_EQ(*parser.next(), MultipartParser::Event::part_begin);
  EXPECT_EQ(*parser.next(), MultipartParser::Event::need_more);
  EXPECT_EQ(parser.held_back(), "partial\r\n--");
  EXPECT_FALSE(parser.finish().ok());
}

TEST(MultipartBoundary, FromContentType) {
  EXPECT_EQ(*multipart_boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(*multipart_boundary("multipart/form-data; charset=utf-8; BOUNDARY=\"a b;c\""), "a b;c");
  EXPECT_FALSE(multipart_boundary("multipart/form-data").ok());
  EXPECT_FALSE(multipart_boundary("multipart/form-data; boundary=").ok());
  EXPECT_FALSE(multipart_boundary("multipart/form-data; boundary=" + std::string(201, 'x')).ok());
}

TEST(ContentDispositionOfAPart, Names) {
  const auto name = [](std::string_view value) { return parse_content_disposition(value); };
  EXPECT_EQ(name("form-data; name=\"file\"").name, "file");
  EXPECT_EQ(name("form-data; name=\"file\"").filename, std::nullopt);
  EXPECT_EQ(name("attachment; name=\"file\"").name, "");
  EXPECT_EQ(name("form-data; name=file; filename=\"/a/b c.txt\"").filename, "/a/b c.txt");
  EXPECT_EQ(name("form-data; name=file; filename=\"a%22b\"").filename, "a%22b");
  EXPECT_EQ(name("form-data; name=file; filename=\"a\\\"b\\\\c\"").filename, "a\"b\\c");
  EXPECT_EQ(name("form-data; name=file; filename=\"C:\\dir\\x\"").filename, "C:\\dir\\x");
  EXPECT_EQ(name("form-data; name=file; filename=\"\xc3\xbc.txt\"").filename, "\xc3\xbc.txt");
  EXPECT_EQ(name("form-data; name=file; filename=\"x\"; filename*=UTF-8''%C3%BC").filename,
            "\xc3\xbc");
  EXPECT_EQ(name("form-data; name=file; filename=\"unterminated").filename, "unterminated");
  EXPECT_EQ(name("form-data; name=file; filename=\"\"").filename, "");
}

}  // namespace
}  // namespace atl::agent
