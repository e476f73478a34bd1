#include "agent/content.h"

#include <gtest/gtest.h>

namespace atl::agent {
namespace {

TEST(ContentDisposition, Forms) {
  EXPECT_EQ(content_disposition("hello.txt"), "inline; filename=hello.txt");
  EXPECT_EQ(content_disposition("a b.txt"), "inline; filename=\"a b.txt\"");
  EXPECT_EQ(content_disposition("a\"b\\c"), "inline; filename=\"a\\\"b\\\\c\"");
  EXPECT_EQ(content_disposition("gr\xc3\xbc\xc3\x9f.txt"),
            "inline; filename*=utf-8''gr%C3%BC%C3%9F.txt");
  EXPECT_EQ(content_disposition("a\r\nX: y"), "inline; filename*=utf-8''a%0D%0AX%3A%20y");
}

TEST(AcceptEncoding, Table) {
  struct Row {
    std::string header;
    std::optional<Encoding> encoding;  // nullopt: 406
  };
  const Row rows[] = {
      {"", Encoding::identity},
      {"gzip", Encoding::gzip},
      {"GZIP", Encoding::gzip},
      {"gzip, deflate", Encoding::gzip},
      {"br, gzip, deflate", Encoding::gzip},
      {"deflate, br", Encoding::identity},
      {"identity", Encoding::identity},
      {"identity, gzip", Encoding::identity},
      {"gzip, identity", Encoding::gzip},
      {"gzip;q=0.5, identity", Encoding::identity},
      {"gzip;q=0.5, identity;q=0.4", Encoding::gzip},
      {"gzip;q=0", Encoding::identity},
      {"*", Encoding::identity},
      {"*, gzip;q=0.5", Encoding::identity},
      {"identity;q=0, *", Encoding::gzip},
      {"identity;q=0, gzip", Encoding::gzip},
      {"*;q=0, gzip", Encoding::gzip},
      {"*;q=0, identity", Encoding::identity},
      {"gzip;q=bad", Encoding::gzip},
      {"identity;q=0", std::nullopt},
      {"*;q=0", std::nullopt},
      {"br, identity;q=0", std::nullopt},
      {"identity;q=0, gzip;q=0, *", std::nullopt},
  };
  for (const Row& row : rows) {
    const auto accepted = accept_encoding(row.header);
    ASSERT_EQ(accepted.ok(), row.encoding.has_value()) << row.header;
    if (accepted.ok()) {
      EXPECT_EQ(accepted->encoding, *row.encoding) << row.header;
    } else {
      EXPECT_EQ(accepted.error().message, "no acceptable encoding found, supported: [gzip]");
    }
  }
  EXPECT_FALSE(accept_encoding("gzip")->among_others);
  EXPECT_FALSE(accept_encoding("gzip, *;q=0.1")->among_others);
  EXPECT_TRUE(accept_encoding("gzip, deflate")->among_others);
  EXPECT_FALSE(accept_encoding("gzip, identity;q=0")->identity_allowed);
}

TEST(ContentEncoding, OfRequests) {
  EXPECT_EQ(*content_encoding(""), Encoding::identity);
  EXPECT_EQ(*content_encoding("identity"), Encoding::identity);
  EXPECT_EQ(*content_encoding("Gzip"), Encoding::gzip);
  const auto brotli = content_encoding("br");
  ASSERT_FALSE(brotli.ok());
  EXPECT_EQ(brotli.error().message, "unsupported Content-Encoding: br, supported: [gzip]");
}

TEST(HttpDate, RoundTrip) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777);
  for (const char* bad :
       {"", "yesterday", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 GMT x",
        "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 99 Nov 1994 08:49:37 GMT"}) {
    EXPECT_EQ(parse_http_date(bad), std::nullopt) << bad;
  }
}

TEST(SelectContent, Ranges) {
  struct Row {
    std::string range;
    int status;
    std::uint64_t offset;
    std::uint64_t length;
  };
  const Row rows[] = {
      {"bytes=0-9", 206, 0, 10},
      {"bytes=90-", 206, 90, 10},
      {"bytes=90-200", 206, 90, 10},
      {"bytes=-5", 206, 95, 5},
      {"bytes=-500", 206, 0, 100},
      {"bytes=99-99", 206, 99, 1},
      {"bytes=100-", 416, 0, 0},
      {"bytes=-0", 416, 0, 0},
      {"bytes=5-4", 200, 0, 100},
      {"bytes=0-1,5-6", 200, 0, 100},
      {"lines=0-1", 200, 0, 100},
      {"bytes=a-b", 200, 0, 100},
      {"bytes=", 200, 0, 100},
      {"bytes=18446744073709551616-", 200, 0, 100},
      {"bytes=0-18446744073709551615", 206, 0, 100},
  };
  for (const Row& row : rows) {
    const Selection got = select_content(net::Headers{{"Range", row.range}}, 100, 1000);
    EXPECT_EQ(got.status, row.status) << row.range;
    EXPECT_EQ(got.offset, row.offset) << row.range;
    EXPECT_EQ(got.length, row.length) << row.range;
  }
  EXPECT_EQ(select_content(net::Headers{{"Range", "bytes=0-"}}, 0, 1000).status, 416);
}

TEST(SelectContent, Conditions) {
  const std::string at = http_date(1000);
  const std::string before = http_date(999);
  const std::string after = http_date(1001);
  const auto status = [](net::Headers headers) {
    return select_content(headers, 100, 1000).status;
  };
  EXPECT_EQ(status({{"If-Modified-Since", at}}), 304);
  EXPECT_EQ(status({{"If-Modified-Since", after}}), 304);
  EXPECT_EQ(status({{"If-Modified-Since", before}}), 200);
  EXPECT_EQ(status({{"If-Modified-Since", "nonsense"}}), 200);
  EXPECT_EQ(status({{"If-Unmodified-Since", before}}), 412);
  EXPECT_EQ(status({{"If-Unmodified-Since", at}}), 200);
  EXPECT_EQ(status({{"If-Match", "*"}}), 200);
  EXPECT_EQ(status({{"If-Match", "\"x\""}}), 412);
  EXPECT_EQ(status({{"If-None-Match", "*"}}), 304);
  EXPECT_EQ(status({{"If-None-Match", "\"x\""}, {"If-Modified-Since", at}}), 200);
  EXPECT_EQ(status({{"Range", "bytes=0-1"}, {"If-Range", at}}), 206);
  EXPECT_EQ(status({{"Range", "bytes=0-1"}, {"If-Range", before}}), 200);
  EXPECT_EQ(status({{"Range", "bytes=0-1"}, {"If-Range", "\"x\""}}), 200);
  EXPECT_FALSE(is_range_or_conditional(net::Headers{{"Accept", "*/*"}}));
  EXPECT_TRUE(is_range_or_conditional(net::Headers{{"range", "bytes=0-1"}}));
}

TEST(ContentType, ByNameElseByBytes) {
  EXPECT_EQ(content_type("a.JSON", ""), "application/json");
  EXPECT_EQ(content_type("a.html", "x"), "text/html; charset=utf-8");
  EXPECT_EQ(content_type("a.unknown", "hello"), "text/plain; charset=utf-8");
  EXPECT_EQ(content_type("noext", ""), "text/plain; charset=utf-8");
  EXPECT_EQ(content_type("noext", std::string("a\0b", 3)), "application/octet-stream");
  EXPECT_EQ(content_type("noext", "\x89PNG\r\n\x1a\n...."), "image/png");
  EXPECT_EQ(content_type("noext", "  <!DOCTYPE html>"), "text/html; charset=utf-8");
  EXPECT_EQ(content_type("noext", "<?xml version"), "text/xml; charset=utf-8");
  EXPECT_EQ(content_type("noext", "%PDF-1.7"), "application/pdf");
  EXPECT_EQ(content_type(".json", ""), "application/json");
  EXPECT_EQ(content_type("noext", "gr\xc3\xbc\xc3\x9f"), "text/plain; charset=utf-8");
}

}  // namespace
}  // namespace atl::agent
