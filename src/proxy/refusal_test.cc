#include "proxy/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::proxy {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Refusal, ExactBodies) {
  EXPECT_EQ(sandbox_not_found("iabc").json,
            R"({"sandboxId":"iabc","message":"The sandbox was not found","code":502})");
  EXPECT_EQ(
      port_not_open("iabc", 8000).json,
      R"({"sandboxId":"iabc","message":"The sandbox is running but port is not open","port":8000,"code":502})");
  EXPECT_EQ(
      traffic_token_missing("iabc").json,
      R"({"sandboxId":"iabc","message":"Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing","code":403})");
  EXPECT_EQ(
      traffic_token_wrong("iabc").json,
      R"({"sandboxId":"iabc","message":"Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid","code":403})");
  EXPECT_EQ(
      too_many_connections("iabc", 5).json,
      R"j({"sandboxId":"iabc","message":"The sandbox has too many concurrent incoming connections (limit: 5)","code":429,"connectionLimit":5})j");
  EXPECT_EQ(
      resume_denied("iabc").json,
      R"({"sandboxId":"iabc","message":"This sandbox can't be resumed with the credentials provided. Check your access token and try again.","code":403})");
  EXPECT_EQ(
      still_transitioning("iabc").json,
      R"({"sandboxId":"iabc","message":"The sandbox is still transitioning. Try again in a moment.","code":409})");
  EXPECT_EQ(resume_refused("iabc", "full").json,
            R"({"sandboxId":"iabc","message":"full","code":429})");
  EXPECT_EQ(
      reserved_route("/init").json,
      R"({"message":"This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL","path":"/init","code":404})");
}

net::RequestHead from(net::Headers headers) {
  net::RequestHead head;
  head.headers = std::move(headers);
  return head;
}

TEST(Refusal, OnlyNavigatingBrowsersGetPages) {
  const std::string chrome = "Mozilla/5.0 (X11; Linux x86_64) Chrome/120";
  EXPECT_FALSE(wants_page(from({})));
  EXPECT_FALSE(wants_page(from({{"User-Agent", "e2b-js-sdk/2.51.0"}})));
  EXPECT_FALSE(wants_page(from({{"User-Agent", "curl/8.0"}})));
  EXPECT_TRUE(wants_page(from({{"User-Agent", chrome}})));
  EXPECT_TRUE(wants_page(
      from({{"User-Agent", chrome}, {"Sec-Fetch-Mode", "navigate"}, {"X-Requested-With", "x"}})));
  EXPECT_FALSE(wants_page(from({{"User-Agent", chrome}, {"X-Requested-With", "XMLHttpRequest"}})));
  EXPECT_FALSE(wants_page(from({{"User-Agent", chrome}, {"Accept", "application/json"}})));
  EXPECT_TRUE(wants_page(from({{"User-Agent", chrome}, {"Accept", "text/html,application/json"}})));
  for (const char* mode : {"cors", "no-cors", "same-origin", "websocket"}) {
    EXPECT_FALSE(wants_page(from({{"User-Agent", chrome}, {"Sec-Fetch-Mode", mode}}))) << mode;
  }
}

TEST(Refusal, PagesNameTheSandbox) {
  const auto browser = from({{"User-Agent", "Firefox"}});
  const std::pair<Refusal, std::string> cases[] = {
      {sandbox_not_found("iabc"), "Sandbox Not Found"},
      {port_not_open("iabc", 8123), "no service running on port 8123"},
      {traffic_token_missing("iabc"), "Missing Traffic Access Token"},
      {traffic_token_wrong("iabc"), "Invalid Traffic Access Token"},
      {resume_denied("iabc"), "paused"},
      {still_transitioning("iabc"), "Try again in a moment"},
      {resume_refused("iabc", "the server is full"), "the server is full"},
  };
  for (const auto& [refusal, phrase] : cases) {
    const Rendered page = render(refusal, browser);
    EXPECT_EQ(page.headers.get("Content-Type"), "text/html; charset=utf-8");
    EXPECT_THAT(page.body, StartsWith("<html"));
    EXPECT_THAT(page.body, EndsWith("</html>"));
    EXPECT_THAT(page.body, HasSubstr("iabc"));
    EXPECT_THAT(page.body, HasSubstr(phrase));
  }
  const Rendered json = render(cases[0].first, from({}));
  EXPECT_EQ(json.headers.get("Content-Type"), "application/json; charset=utf-8");
}

TEST(Refusal, PagesEscapeWhatTheyShow) {
  const Rendered page = render(reserved_route("/<script>\"&"), from({{"User-Agent", "Firefox"}}));
  EXPECT_THAT(page.body, HasSubstr("/&lt;script&gt;&quot;&amp;"));
  EXPECT_THAT(page.body, ::testing::Not(HasSubstr("<script>")));
}

}  // namespace
}  // namespace atl::proxy
