#include "engine/route.h"

#include <gtest/gtest.h>

namespace atl::engine {
namespace {

std::shared_ptr<Route> make(const std::string& id, const std::string& token = {},
                            std::uint32_t limit = 0) {
  return std::make_shared<Route>(
      RouteSpec{.id = *SandboxId::parse(id), .access_token = token, .max_connections = limit});
}

TEST(Route, TellsSubscribersOnceAndLateOnesAtOnce) {
  auto route = make("ia");
  int early = 0;
  int dropped = 0;
  int late = 0;
  auto first = Route::subscribe(route, [&] { ++early; });
  {
    auto gone = Route::subscribe(route, [&] { ++dropped; });
  }
  EXPECT_FALSE(route->dead());
  route->die();
  route->die();
  EXPECT_TRUE(route->dead());
  EXPECT_EQ(early, 1);
  EXPECT_EQ(dropped, 0);
  auto after = Route::subscribe(route, [&] { ++late; });
  EXPECT_EQ(late, 1);
}

TEST(Route, MovedSubscriptionsStayOne) {
  auto route = make("ia");
  int calls = 0;
  Route::Subscription kept;
  {
    auto made = Route::subscribe(route, [&] { ++calls; });
    kept = std::move(made);
  }
  route->die();
  EXPECT_EQ(calls, 1);
}

TEST(Route, LimitsConnections) {
  auto route = make("ia", "", 2);
  EXPECT_TRUE(route->enter());
  EXPECT_TRUE(route->enter());
  EXPECT_FALSE(route->enter());
  route->leave();
  EXPECT_TRUE(route->enter());
  auto unlimited = make("ib");
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(unlimited->enter());
}

TEST(RouteTable, FindsByIdAndByTokenUntilRemoved) {
  RouteTable table;
  table.add(make("ia", "token-a"));
  table.add(make("ib"));
  EXPECT_EQ(table.find(*SandboxId::parse("ia"))->id().str(), "ia");
  EXPECT_EQ(table.find_by_access_token("token-a")->id().str(), "ia");
  EXPECT_EQ(table.find_by_access_token("token-b"), nullptr);
  EXPECT_EQ(table.find_by_access_token(""), nullptr);
  table.remove(*SandboxId::parse("ia"));
  table.remove(*SandboxId::parse("ia"));
  EXPECT_EQ(table.find(*SandboxId::parse("ia")), nullptr);
  EXPECT_EQ(table.find_by_access_token("token-a"), nullptr);
  EXPECT_NE(table.find(*SandboxId::parse("ib")), nullptr);
}

TEST(Route, HoldTellsOnceAndDeathFollows) {
  auto route = make("ia");
  std::string said;
  auto first = Route::subscribe(route, [&] { said += "d"; }, [&] { said += "h"; });
  auto plain = Route::subscribe(route, [&] { said += "p"; });
  EXPECT_FALSE(route->held());
  route->hold();
  route->hold();
  EXPECT_TRUE(route->held());
  EXPECT_EQ(said, "h");
  auto late = Route::subscribe(route, [&] { said += "D"; }, [&] { said += "H"; });
  EXPECT_EQ(said, "hH") << "at once";
  route->die();
  EXPECT_EQ(said.size(), 5u);
  EXPECT_NE(said.find('D'), std::string::npos);
  route->hold();
  EXPECT_EQ(said.size(), 5u) << "the dead are not held";
}

TEST(Route, NobodyGoesInsideOnceItIsHeldOrDead) {
  auto route = make("ia");
  {
    auto one = Route::go_inside(route);
    EXPECT_TRUE(one);
    auto moved = std::move(one);
    EXPECT_FALSE(one);
    EXPECT_EQ(route->inside(), 1u);
    route->hold();
    EXPECT_FALSE(Route::go_inside(route));
    EXPECT_EQ(route->inside(), 1u) << "those that are there count on";
  }
  EXPECT_EQ(route->inside(), 0u);
  auto other = make("ib");
  other->die();
  EXPECT_FALSE(Route::go_inside(other));
  EXPECT_EQ(other->inside(), 0u);
}

}  // namespace
}  // namespace atl::engine
