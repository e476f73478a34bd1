// Traffic to sandboxes that do not run.
#include <gmock/gmock.h>

#include "proxy/testing.h"

namespace atl::proxy {
namespace {

using engine::testing::fetch;
using engine::testing::Got;
using ::testing::HasSubstr;

class WakeTest : public GatewayTest {
 protected:
  WakeTest() {
    serve([](net::Exchange& exchange) -> net::Task<void> {
      auto reading = exchange.body.read_all(1 << 20);
      auto body = co_await std::move(reading);
      auto sending = exchange.response.send(200, {}, "served " + body.value());
      (void)co_await std::move(sending);
    });
  }
  engine::SandboxInfo paused(bool auto_resume, bool secure = false, bool is_public = true,
                             bool memory = true) {
    auto command = f.command();
    command.secure = secure;
    command.allow_public_traffic = is_public;
    command.auto_pause = true;
    command.auto_resume = auto_resume;
    auto made = f.run(f.engine->create(command));
    EXPECT_TRUE(made.ok());
    auto done = f.run(f.engine->pause(f.caller(), made->record.id, memory));
    EXPECT_TRUE(done.ok()) << done.error().message;
    return *made;
  }
  bool is_paused(const SandboxId& id) {
    return f.engine->info(f.caller(), id)->record.state == store::SandboxState::paused;
  }
};

TEST_F(WakeTest, ARequestWakesAndIsThenCarried) {
  const auto id = paused(true).record.id;
  const Got got = fetch(f, port, "POST", "/x", to(id, 8000), "hello");
  EXPECT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(got.body, "served hello");
  EXPECT_FALSE(is_paused(id));
}

TEST_F(WakeTest, TheAgentsPortWakesToo) {
  const auto id = paused(true).record.id;
  EXPECT_EQ(get("/health", to(id)).status, 204);
  EXPECT_FALSE(is_paused(id));
}

TEST_F(WakeTest, WithoutAutoResumeItIsAsIfItWereNotThere) {
  const auto id = paused(false).record.id;
  const Got got = get("/x", to(id, 8000));
  EXPECT_EQ(got.status, 502);
  EXPECT_EQ(got.body, R"({"sandboxId":")" + id.str() +
                          R"(","message":"The sandbox was not found","code":502})");
  EXPECT_TRUE(is_paused(id));
}

TEST_F(WakeTest, OnlyTheDiskWasKeptSoNothingWakesIt) {
  const auto id = paused(true, false, true, false).record.id;
  EXPECT_EQ(get("/x", to(id, 8000)).status, 502);
  EXPECT_TRUE(is_paused(id));
}

TEST_F(WakeTest, TheAgentOfASecuredOneAsksForItsToken) {
  const auto sandbox = paused(true, true);
  const auto& id = sandbox.record.id;
  net::Headers headers = to(id);
  Got got = get("/health", headers);
  EXPECT_EQ(got.status, 403);
  EXPECT_THAT(got.body, HasSubstr("This sandbox can't be resumed with the credentials provided."));
  headers.add("X-Access-Token", "wrong");
  EXPECT_EQ(get("/health", headers).status, 403);
  EXPECT_TRUE(is_paused(id));
  headers.set("X-Access-Token", *sandbox.access_token);
  EXPECT_EQ(get("/health", headers).status, 204);
  EXPECT_FALSE(is_paused(id));
}

TEST_F(WakeTest, PortsOfAPrivateOneAskForTheTrafficToken) {
  const auto sandbox = paused(true, true, false);
  const auto& id = sandbox.record.id;
  net::Headers headers = to(id, 8000);
  EXPECT_EQ(get("/x", headers).status, 403);
  EXPECT_TRUE(is_paused(id));
  headers.add("e2b-traffic-access-token", *sandbox.traffic_token);
  EXPECT_EQ(get("/x", headers).status, 200);
  EXPECT_FALSE(is_paused(id));
}

TEST_F(WakeTest, ManyRequestsAtOnceWakeItOnce) {
  const auto id = paused(true).record.id;
  std::atomic<int> good = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back([&] { good += get("/x", to(id, 8000)).status == 200; });
  for (auto& client : clients) client.join();
  EXPECT_EQ(good, 8);
}

TEST_F(WakeTest, BrowsersGetAPage) {
  const auto id = paused(true, true).record.id;
  net::Headers headers = to(id);
  headers.add("User-Agent", "Mozilla/5.0 Firefox");
  const Got got = get("/", headers);
  EXPECT_EQ(got.status, 403);
  EXPECT_THAT(got.body, HasSubstr("<html"));
  EXPECT_THAT(got.body, HasSubstr(id.str()));
}

}  // namespace
}  // namespace atl::proxy
