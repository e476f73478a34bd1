#include "proxy/headers.h"

#include <gtest/gtest.h>

namespace atl::proxy {
namespace {

net::RequestHead request(net::Headers headers) {
  net::RequestHead head;
  head.method = "GET";
  head.target = "/a?b=c";
  head.headers = std::move(headers);
  return head;
}

TEST(RequestHeaders, HopByHopHeadersStay) {
  const auto out = request_to_sandbox(request({{"Host", "8000-iabc.box.example"},
                                               {"Connection", "keep-alive, X-Hop"},
                                               {"X-Hop", "1"},
                                               {"Keep-Alive", "timeout=5"},
                                               {"TE", "trailers"},
                                               {"Trailer", "x"},
                                               {"Transfer-Encoding", "chunked"},
                                               {"Content-Length", "5"},
                                               {"Proxy-Authorization", "secret"},
                                               {"Upgrade", "h2c"},
                                               {"Expect", "100-continue"},
                                               {"X-Forwarded-For", "1.2.3.4"},
                                               {"X-Forwarded-Host", "evil"},
                                               {"Forwarded", "for=1.2.3.4"},
                                               {"Cookie", "a=b"},
                                               {"X-Custom", "1"},
                                               {"X-Custom", "2"}}),
                                      8000, "", Upgrade::no);
  EXPECT_EQ(out.target, "/a?b=c");
  ASSERT_EQ(out.headers.size(), 4u);
  EXPECT_EQ(out.headers.get("Host"), "8000-iabc.box.example");
  EXPECT_EQ(out.headers.get("Cookie"), "a=b");
  EXPECT_EQ(out.headers.get("X-Custom"), "1");
}

TEST(RequestHeaders, EveryConnectionHeaderCounts) {
  const auto out = request_to_sandbox(request({{"Connection", "keep-alive"},
                                               {"Connection", "X-Second"},
                                               {"X-Second", "1"},
                                               {"X-Third", "1"}}),
                                      8000, "", Upgrade::no);
  EXPECT_FALSE(out.headers.has("X-Second"));
  EXPECT_TRUE(out.headers.has("X-Third"));
}

TEST(RequestHeaders, KeysOfTheServerNeverEnterASandbox) {
  const auto ours = request({{"X-API-Key", "e2b_0123"}});
  EXPECT_FALSE(request_to_sandbox(ours, 8000, "", Upgrade::no).headers.has("X-API-Key"));
  EXPECT_FALSE(request_to_sandbox(ours, 49983, "", Upgrade::no).headers.has("X-API-Key"));
  const auto admin = request(
      {{"X-Admin-Token", "0123"}, {"Authorization", "Bearer e2b_0123"}, {"X-Other", "stays"}});
  for (const std::uint16_t port : {8000, 49983})
    EXPECT_EQ(request_to_sandbox(admin, port, "", Upgrade::no).headers.size(), 1u);
  const auto user = request({{"Authorization", "Basic dXNlcjo="}});
  EXPECT_EQ(request_to_sandbox(user, 49983, "", Upgrade::no).headers.size(), 1u);
  const auto theirs = request({{"X-API-Key", "sk-123"}});
  EXPECT_TRUE(request_to_sandbox(theirs, 8000, "", Upgrade::no).headers.has("X-API-Key"));
}

TEST(RequestHeaders, TheMaskReplacesTheHostOfServices) {
  const auto in = request({{"Host", "8000-iabc.box.example"}});
  const auto out = request_to_sandbox(in, 8000, "h.example.com:${PORT}", Upgrade::no);
  EXPECT_EQ(out.headers.get("Host"), "h.example.com:8000");
  EXPECT_EQ(out.headers.get("X-Forwarded-Host"), "8000-iabc.box.example");
  EXPECT_EQ(request_to_sandbox(in, 49983, "h.example.com", Upgrade::no).headers.get("Host"),
            "8000-iabc.box.example");
}

TEST(RequestHeaders, UpgradesPass) {
  const auto in = request({{"Connection", "keep-alive, Upgrade"},
                           {"Upgrade", "websocket"},
                           {"Sec-WebSocket-Key", "k"}});
  ASSERT_EQ(asks_upgrade(in), Upgrade::yes);
  const auto out = request_to_sandbox(in, 8000, "", Upgrade::yes);
  EXPECT_EQ(out.headers.get("Connection"), "Upgrade");
  EXPECT_EQ(out.headers.get("Upgrade"), "websocket");
  EXPECT_EQ(out.headers.get("Sec-WebSocket-Key"), "k");
  EXPECT_EQ(asks_upgrade(request({{"Upgrade", "websocket"}})), Upgrade::no)
      << "not named by Connection";
}

TEST(ResponseHeaders, FramingIsMadeAnew) {
  net::ResponseHead head;
  head.headers = {{"Content-Length", "5"},
                  {"Transfer-Encoding", "chunked"},
                  {"Connection", "close, X-Hop"},
                  {"X-Hop", "1"},
                  {"Set-Cookie", "a"},
                  {"Set-Cookie", "b"},
                  {"Content-Type", "text/plain"}};
  const auto out = headers_to_client(head, Upgrade::no);
  EXPECT_EQ(out.size(), 3u);
  EXPECT_FALSE(out.has("Connection"));
  EXPECT_EQ(out.get("Content-Type"), "text/plain");
}

}  // namespace
}  // namespace atl::proxy
