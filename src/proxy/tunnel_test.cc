#include <gmock/gmock.h>

#include "proxy/testing.h"

namespace atl::proxy {
namespace {

using engine::testing::Fixture;
using engine::testing::RawClient;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Switches protocols, then sends every byte back in capitals until the client ends.
net::Task<void> shout(net::Exchange& exchange) {
  if (!exchange.request.headers.lists("Connection", "upgrade") ||
      exchange.request.headers.get("Upgrade") != "shout") {
    auto sending = exchange.response.send(426, {}, "upgrade me");
    (void)co_await std::move(sending);
    co_return;
  }
  auto starting =
      exchange.response.start(101, {{"Connection", "Upgrade"}, {"Upgrade", "shout"}}, std::nullopt);
  (void)co_await std::move(starting);
  std::string early = exchange.take_over();
  std::vector<char> buffer(1000);
  for (;;) {
    for (char& c : early) c = char(std::toupper(c));
    if (!early.empty()) {
      auto writing = exchange.stream.write_all(early);
      if (!(co_await std::move(writing)).ok()) co_return;
    }
    auto reading = exchange.stream.read_some(buffer);
    auto n = co_await std::move(reading);
    if (!n.ok() || *n == 0) break;
    early.assign(buffer.data(), *n);
  }
  auto bye = exchange.stream.write_all("BYE");
  (void)co_await std::move(bye);
}

class TunnelTest : public GatewayTest {
 protected:
  TunnelTest() {
    f.runtime.handler = shout;
    serve(shout);
  }
  std::string upgrade(const SandboxId& id, int to_port) {
    return "GET /ws HTTP/1.1\r\n" + raw_headers(id, to_port) +
           "Connection: Upgrade\r\nUpgrade: shout\r\n\r\n";
  }
};

TEST_F(TunnelTest, BytesPassBothWaysToServicesAndAgent) {
  const auto sandbox = create();
  for (int to_port : {8000, 49983}) {
    RawClient client(port);
    client.send(upgrade(sandbox.record.id, to_port));
    const std::string head = client.read_until("\r\n\r\n");
    EXPECT_THAT(head, StartsWith("HTTP/1.1 101")) << to_port;
    EXPECT_THAT(head, HasSubstr("Upgrade: shout"));
    client.send("hello");
    EXPECT_EQ(client.read_until("HELLO"), "HELLO");
    client.send("again");
    EXPECT_EQ(client.read_until("AGAIN"), "AGAIN");
  }
}

TEST_F(TunnelTest, BytesSentWithTheRequestArrive) {
  const auto sandbox = create();
  RawClient client(port);
  client.send(upgrade(sandbox.record.id, 8000) + "early");
  EXPECT_THAT(client.read_until("EARLY"), StartsWith("HTTP/1.1 101"));
}

TEST_F(TunnelTest, AnEndOnOneSideIsPassedOn) {
  const auto sandbox = create();
  RawClient client(port);
  client.send(upgrade(sandbox.record.id, 8000));
  client.read_until("\r\n\r\n");
  client.shutdown_write();
  EXPECT_EQ(client.read_all(), "BYE");
  EXPECT_TRUE(client.ended());
}

TEST_F(TunnelTest, KillResetsTunnels) {
  const auto sandbox = create();
  RawClient client(port);
  client.send(upgrade(sandbox.record.id, 8000));
  client.read_until("\r\n\r\n");
  client.send("x");
  client.read_until("X");
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), sandbox.record.id)).ok());
  client.read_all();
  EXPECT_TRUE(client.was_reset());
}

TEST_F(TunnelTest, ARefusedUpgradeIsAnOrdinaryAnswer) {
  const auto sandbox = create();
  RawClient client(port);
  client.send("GET /ws HTTP/1.1\r\n" + raw_headers(sandbox.record.id, 8000) +
              "Connection: Upgrade\r\nUpgrade: other\r\n\r\n");
  EXPECT_THAT(client.read_until("upgrade me"), StartsWith("HTTP/1.1 426"));
  client.send("GET /ws HTTP/1.1\r\n" + raw_headers(sandbox.record.id, 8000) + "\r\n");
  EXPECT_THAT(client.read_until("upgrade me"), StartsWith("HTTP/1.1 426"))
      << "the connection lives on";
}

TEST_F(TunnelTest, AnUpgradeThatNobodyAskedForIsRefused) {
  const auto sandbox = create();
  f.runtime.handler = [](net::Exchange& exchange) -> net::Task<void> {
    auto starting = exchange.response.start(101, {{"Connection", "Upgrade"}, {"Upgrade", "evil"}},
                                            std::nullopt);
    (void)co_await std::move(starting);
    exchange.take_over();
  };
  EXPECT_EQ(get("/", to(sandbox.record.id)).status, 502);
}

}  // namespace
}  // namespace atl::proxy
