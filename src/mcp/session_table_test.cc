#include "mcp/session_table.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

namespace atl::mcp {
namespace {

class SessionTableTest : public ::testing::Test {
 protected:
  std::shared_ptr<McpSession> make(const std::string& id, const std::string& team = "t",
                                   const std::string& key = "k") {
    Setting setting;
    setting.caller.team_id = team;
    setting.key = key;
    return std::make_shared<McpSession>(id, "2025-06-18", setting);
  }
  std::shared_ptr<Stop> stop() { return std::make_shared<Stop>(io.get_executor()); }

  net::asio::io_context io;
  SessionTable::Clock::time_point now{};
  SessionTable table{{.all = 4, .per_team = 3, .idle = std::chrono::seconds(60)},
                     [this] { return now; }};
};

TEST_F(SessionTableTest, ASessionBelongsToItsTeam) {
  ASSERT_TRUE(table.add(make("a")).ok());
  EXPECT_NE(table.find("a", "t"), nullptr);
  EXPECT_EQ(table.find("a", "other"), nullptr);
  EXPECT_EQ(table.remove("a", "other"), nullptr);
  EXPECT_NE(table.remove("a", "t"), nullptr);
  EXPECT_EQ(table.find("a", "t"), nullptr);
}

TEST_F(SessionTableTest, IdleOnesGo) {
  ASSERT_TRUE(table.add(make("a")).ok());
  now += std::chrono::seconds(50);
  EXPECT_NE(table.find("a", "t"), nullptr);  // and is used again
  now += std::chrono::seconds(50);
  EXPECT_NE(table.find("a", "t"), nullptr);
  now += std::chrono::seconds(61);
  EXPECT_EQ(table.find("a", "t"), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

TEST_F(SessionTableTest, TheOldestOfTheTeamMakesRoom) {
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(table.add(make(id)).ok());
    now += std::chrono::seconds(1);
  }
  auto busy = table.find("a", "t");
  ASSERT_TRUE(busy->begin_call("1", stop()).ok());
  ASSERT_TRUE(table.add(make("d")).ok());
  EXPECT_EQ(table.find("b", "t"), nullptr);
  EXPECT_NE(table.find("a", "t"), nullptr);
  EXPECT_EQ(table.size(), 3u);
}

TEST_F(SessionTableTest, OneTeamCannotPushOutAnother) {
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(table.add(make(id)).ok());
  ASSERT_TRUE(table.add(make("x", "u")).ok());
  EXPECT_FALSE(table.add(make("y", "v")).ok());
  EXPECT_EQ(table.size(), 4u);
}

TEST_F(SessionTableTest, WhoWorksInASandbox) {
  auto a = make("a"), b = make("b");
  ASSERT_TRUE(table.add(a).ok());
  ASSERT_TRUE(table.add(b).ok());
  EXPECT_EQ(table.users_of("t", "k"), 0u);
  a->mark_used();
  EXPECT_EQ(table.users_of("t", "k"), 1u);
  EXPECT_EQ(table.users_of("t", "other"), 0u);
}

TEST_F(SessionTableTest, CallsAreCountedAndCancelled) {
  auto session = make("a");
  auto first = stop();
  ASSERT_TRUE(session->begin_call("1", first).ok());
  EXPECT_FALSE(session->begin_call("1", stop()).ok());
  session->cancel("1");
  EXPECT_TRUE(first->requested());
  session->end_call("1");
  EXPECT_FALSE(session->busy());
  for (std::size_t i = 0; i < McpSession::kMaxCalls; ++i)
    ASSERT_TRUE(session->begin_call("c" + std::to_string(i), stop()).ok());
  auto over = session->begin_call("more", stop());
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().code, Errc::resource_exhausted);
}

TEST_F(SessionTableTest, TheEndOfASessionStopsItsCalls) {
  auto session = make("a");
  auto call = stop();
  ASSERT_TRUE(session->begin_call("1", call).ok());
  const auto quiet = session->cancel_all();
  EXPECT_TRUE(call->requested());
  EXPECT_FALSE(quiet->is_set());
  auto late = stop();
  ASSERT_TRUE(session->begin_call("2", late).ok());
  EXPECT_TRUE(late->requested()) << "its request was on its way";
  session->end_call("1");
  EXPECT_FALSE(quiet->is_set());
  session->end_call("2");
  EXPECT_TRUE(quiet->is_set());
  EXPECT_TRUE(make("b")->cancel_all()->is_set());
}

TEST_F(SessionTableTest, ACancelMayComeFirst) {
  auto session = make("a");
  session->cancel("7");
  auto call = stop();
  ASSERT_TRUE(session->begin_call("7", call).ok());
  EXPECT_TRUE(call->requested());
  session->end_call("7");
  auto again = stop();
  ASSERT_TRUE(session->begin_call("7", again).ok());
  EXPECT_FALSE(again->requested());
}

}  // namespace
}  // namespace atl::mcp
