#include "api_server/query.h"

#include <gtest/gtest.h>

#include "base/encoding.h"

namespace atl::api {
namespace {

// As the clients do it.
std::string triple(const store::StringMap& map) {
  std::string form;
  for (const auto& [key, value] : map) {
    if (!form.empty()) form += '&';
    form += percent_encode(percent_encode(key)) + "=" + percent_encode(percent_encode(value));
  }
  return percent_encode(form);
}

net::RequestHead head(const std::string& query) {
  net::RequestHead out;
  out.target = "/v2/sandboxes?" + query;
  return out;
}

TEST(MetadataFilter, TripleEncodingSurvivesSpecialCharacters) {
  const store::StringMap map = {
      {"user id", "a&b=c"}, {"k%41", "100% +plus"}, {"unicode", "\xe2\x82\xac\xf0\x9f\x98\x80"}};
  const auto value = head("metadata=" + triple(map)).query_param("metadata");
  ASSERT_TRUE(value);
  auto decoded = decode_metadata_filter(*value);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, map);
}

TEST(MetadataFilter, SimpleFormsAndErrors) {
  EXPECT_EQ(*decode_metadata_filter("user=abc&app=x"),
            (store::StringMap{{"user", "abc"}, {"app", "x"}}));
  EXPECT_TRUE(decode_metadata_filter("")->empty());
  EXPECT_EQ(*decode_metadata_filter("k="), (store::StringMap{{"k", ""}}));
  for (const char* bad : {"novalue", "a=b=c", "a=b&c", "a=%zz", "%", "a=b&&c=d"}) {
    EXPECT_FALSE(decode_metadata_filter(bad).ok()) << bad;
  }
}

TEST(Cursor, RoundTripKeepsEveryDigit) {
  const engine::Cursor cursor{from_ns(1'767'225'599'123'456'000), "iabc"};
  for (auto order : {engine::Order::newest_first, engine::Order::oldest_first}) {
    const std::string token = encode_cursor(cursor, order);
    EXPECT_EQ(token.find_first_of("+/="), std::string::npos);
    auto decoded = decode_cursor(token, order);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->started_at, cursor.started_at);
    EXPECT_EQ(decoded->id, cursor.id);
    const auto other = order == engine::Order::newest_first ? engine::Order::oldest_first
                                                            : engine::Order::newest_first;
    auto crossed = decode_cursor(token, other);
    ASSERT_FALSE(crossed.ok());
    EXPECT_EQ(crossed.error().message, "Invalid next token");
  }
}

TEST(Cursor, RefusesForgeries) {
  for (const std::string& token :
       {std::string("!"), std::string("abcd"), base64_encode("__"), base64_encode("2026__i"),
        base64_encode("2026-01-01T00:00:00Z__I!"), base64_encode("2026-01-01T00:00:00Z"),
        std::string(10'000, 'A')}) {
    auto decoded = decode_cursor(token, engine::Order::newest_first);
    ASSERT_FALSE(decoded.ok()) << token.substr(0, 40);
    EXPECT_EQ(decoded.error().code, Errc::invalid_argument);
  }
}

TEST(ListQuery, DefaultsAndFields) {
  templates::Catalog none("/nonexistent");
  auto query = decode_list_query(head(""), none);
  ASSERT_TRUE(query.ok());
  EXPECT_TRUE(query->running && query->paused);
  EXPECT_EQ(query->limit, 100u);
  EXPECT_EQ(query->order, engine::Order::newest_first);
  query = decode_list_query(head("state=paused&limit=7&order=asc&startedAfter=2026-01-01T00%3A00%"
                                 "3A00.5Z&template=Unknown-Template"),
                            none);
  ASSERT_TRUE(query.ok()) << query.error().message;
  EXPECT_FALSE(query->running);
  EXPECT_TRUE(query->paused);
  EXPECT_EQ(query->limit, 7u);
  EXPECT_EQ(query->order, engine::Order::oldest_first);
  EXPECT_EQ(query->started_after, parse_rfc3339("2026-01-01T00:00:00.5Z"));
  EXPECT_EQ(query->template_id, "unknown-template");
  EXPECT_TRUE(decode_list_query(head("state=running,paused&nextToken="), none).ok());
}

TEST(ListQuery, RefusesWhatIsOutOfRange) {
  templates::Catalog none("/nonexistent");
  for (const char* bad : {"limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "limit=1x",
                          "state=dead", "order=up", "startedAfter=yesterday", "template=a:b",
                          "template=a%20b", "nextToken=zzz", "metadata=a"}) {
    auto query = decode_list_query(head(bad), none);
    ASSERT_FALSE(query.ok()) << bad;
    EXPECT_EQ(query.error().code, Errc::invalid_argument) << bad;
  }
}

}  // namespace
}  // namespace atl::api
