#include <gtest/gtest.h>

#include <set>

#include "base/encoding.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"

namespace atl {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return make_error(Errc::invalid_argument, "odd");
  return n / 2;
}

Result<int> quarter(int n) {
  ATOLL_TRY_ASSIGN(int h, half(n));
  ATOLL_TRY(half(h));
  return h / 2;
}

TEST(Result, TryPassesValuesAndErrors) {
  EXPECT_EQ(*quarter(8), 2);
  auto bad = quarter(6);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, Errc::invalid_argument);
  EXPECT_EQ(std::move(bad).error().with("quarter").message, "quarter: odd");
}

TEST(Errc, TableIsComplete) {
  std::set<std::string_view> names;
  for (int i = 1; i <= 16; ++i) names.insert(connect_name(Errc(i)));
  EXPECT_EQ(names.size(), 16u);
  EXPECT_EQ(http_status(Errc::not_found), 404);
  EXPECT_EQ(http_status(Errc::canceled), 499);
}

TEST(Encoding, Base64) {
  for (std::string s : {"", "f", "fo", "foo", "foob", "fooba", "foobar"})
    EXPECT_EQ(*base64_decode(base64_encode(s)), s);
  EXPECT_EQ(base64_encode("foob"), "Zm9vYg==");
  EXPECT_EQ(*base64_decode("w6k"), "\xc3\xa9");
  EXPECT_EQ(*base64_decode("-_8="), "\xfb\xff");
  EXPECT_FALSE(base64_decode("a"));
  EXPECT_FALSE(base64_decode("a*bc"));
}

TEST(Encoding, Percent) {
  EXPECT_EQ(*percent_decode("a%2Fb+c", PlusIs::space), "a/b c");
  EXPECT_EQ(*percent_decode("a+b"), "a+b");
  EXPECT_FALSE(percent_decode("%zz"));
  EXPECT_FALSE(percent_decode("%4"));
  EXPECT_EQ(percent_encode("a/b é"), "a%2Fb%20%C3%A9");
}

TEST(Encoding, Utf8) {
  EXPECT_TRUE(is_valid_utf8("grün €"));
  EXPECT_FALSE(is_valid_utf8("\xc0\xaf"));      // overlong
  EXPECT_FALSE(is_valid_utf8("\xed\xa0\x80"));  // surrogate
  EXPECT_FALSE(is_valid_utf8("\xe2\x82"));      // cut short
}

TEST(Ids, Shapes) {
  const auto id = SandboxId::generate();
  EXPECT_EQ(id.str().size(), 21u);
  EXPECT_EQ(id.str()[0], 'i');
  EXPECT_TRUE(SandboxId::parse("nonexistingsandbox"));
  EXPECT_FALSE(SandboxId::parse("with-dash"));
  EXPECT_FALSE(SandboxId::parse("Upper"));
  EXPECT_FALSE(SandboxId::parse(""));
  EXPECT_EQ(random_uuid4().size(), 36u);
  EXPECT_TRUE(constant_time_equal("abc", "abc"));
  EXPECT_FALSE(constant_time_equal("abc", "abd"));
  EXPECT_FALSE(constant_time_equal("abc", "ab"));
}

TEST(Json, RejectsTrailingAndDeep) {
  EXPECT_TRUE(parse_json("{\"a\":[1,2]}").ok());
  EXPECT_FALSE(parse_json("{} x").ok());
  EXPECT_FALSE(parse_json(std::string(100, '[') + std::string(100, ']')).ok());
  EXPECT_FALSE(parse_json("").ok());
}

}  // namespace
}  // namespace atl
