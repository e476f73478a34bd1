#include "store/blobs/key.h"

#include <gtest/gtest.h>

namespace atl::blobs {
namespace {

TEST(Key, SegmentsComeBack) {
  for (const std::string text :
       {"a", "report.csv", ".", "..", ".hidden", "a b", "a/b", "=", "@1", "über.txt", "報告", "%2e",
        "a=2Eb", "tab\there", "~", "-", "A.B..C"}) {
    const std::string segment = encode_segment(text);
    EXPECT_TRUE(check_key(segment).ok()) << segment;
    EXPECT_EQ(segment.find('@'), std::string::npos);
    EXPECT_EQ(decode_segment(segment), text) << segment;
  }
}

TEST(Key, DotsCannotLead) {
  EXPECT_EQ(encode_segment(".."), "=2E.");
  EXPECT_EQ(encode_segment(".a.b"), "=2Ea.b");
}

TEST(Key, OnlyOneEncodingIsGood) {
  EXPECT_FALSE(decode_segment("=61"));  // an 'a' that needs none
  EXPECT_FALSE(decode_segment("=2e"));
  EXPECT_FALSE(decode_segment("=2"));
  EXPECT_FALSE(decode_segment("="));
  EXPECT_FALSE(decode_segment(".a"));
}

TEST(Key, BadKeys) {
  for (const std::string& key :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string(".."),
        std::string("a/../b"), std::string("a/.b"), std::string("a b"), std::string("a\0b", 3),
        std::string("\xff"), std::string("a\nb"), std::string(kMaxSegment + 1, 'a'),
        std::string("a%2e")}) {
    EXPECT_FALSE(check_key(key).ok()) << key;
  }
  std::string deep = "a";
  for (std::size_t i = 0; i < kMaxDepth; ++i) deep += "/a";
  EXPECT_FALSE(check_key(deep).ok());
  EXPECT_TRUE(check_key("i/team/b=20c/@v.1").ok());
}

}  // namespace
}  // namespace atl::blobs
