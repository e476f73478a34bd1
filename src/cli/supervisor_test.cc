#include "cli/supervisor.h"

#include <gtest/gtest.h>

#include "cli/metrics.h"
#include "cli/sockets.h"

namespace atl::cli {
namespace {

using std::chrono::milliseconds;

TEST(Backoff, GrowsWhileServersDieYoung) {
  Backoff backoff;
  EXPECT_EQ(backoff.after(std::nullopt), milliseconds(50));
  EXPECT_EQ(backoff.after(milliseconds(10)), milliseconds(100));
  EXPECT_EQ(backoff.after(milliseconds(99)), milliseconds(200));
  for (int i = 0; i < 40; ++i) (void)backoff.after(std::nullopt);
  EXPECT_EQ(backoff.after(std::nullopt), milliseconds(5000));
}

TEST(Backoff, ForgetsAfterAHealthyServer) {
  Backoff backoff;
  (void)backoff.after(std::nullopt);
  (void)backoff.after(std::nullopt);
  EXPECT_EQ(backoff.after(milliseconds(100)), milliseconds(0));
  EXPECT_EQ(backoff.after(std::nullopt), milliseconds(50));
}

TEST(Words, AreWhole) {
  EXPECT_TRUE(has_word("announce,tls", "tls"));
  EXPECT_TRUE(has_word("tls", "tls"));
  EXPECT_FALSE(has_word("announce,tlsx", "tls"));
  EXPECT_FALSE(has_word("", "tls"));
}

TEST(Addresses, AreSplit) {
  auto v4 = split_address("127.0.0.1:3000");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->host, "127.0.0.1");
  EXPECT_EQ(v4->port, 3000);
  auto v6 = split_address("[::1]:0");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  for (const char* bad : {"", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:65536", "a:b", "1:2x"}) {
    EXPECT_FALSE(split_address(bad).ok()) << bad;
  }
}

TEST(Sockets, ListenAndAreAdopted) {
  auto made = listen_on("127.0.0.1:0");
  ASSERT_TRUE(made.ok());
  EXPECT_NE(made->address, "127.0.0.1:0");
  const std::string address = made->address;
  EXPECT_FALSE(listen_on(address).ok());
  auto adopted = adopt_listening(made->fd.release());
  ASSERT_TRUE(adopted.ok());
  EXPECT_EQ(adopted->address, address);
  EXPECT_FALSE(listen_on("localhost:0").ok());
}

TEST(Metrics, QuantilesAndStates) {
  MetricsInput input;
  input.engine.running = 3;
  for (int i = 1; i <= 100; ++i) input.engine.create_seconds.push_back(i / 1000.0);
  const std::string text = exposition(input);
  EXPECT_NE(text.find("atoll_sandboxes{state=\"running\"} 3\n"), std::string::npos);
  EXPECT_NE(text.find("atoll_create_seconds{quantile=\"0.99\"} 0.099\n"), std::string::npos);
  EXPECT_NE(text.find("# TYPE atoll_creates_total counter\n"), std::string::npos);
}

}  // namespace
}  // namespace atl::cli
