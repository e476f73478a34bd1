#include "api_server/routes.h"

#include <gtest/gtest.h>

#include "api_server/api_server.h"

namespace atl::api {
namespace {

TEST(Routes, FindActions) {
  EXPECT_EQ(match_route("POST", "/sandboxes").route->action, Action::create_v1);
  EXPECT_EQ(match_route("POST", "/v2/sandboxes").route->action, Action::create_v2);
  EXPECT_EQ(match_route("GET", "/v2/sandboxes").route->action, Action::list_v2);
  const Match info = match_route("GET", "/sandboxes/iabc");
  ASSERT_NE(info.route, nullptr);
  EXPECT_EQ(info.route->action, Action::info);
  EXPECT_EQ(info.params, std::vector<std::string>{"iabc"});
  EXPECT_EQ(match_route("POST", "/v2/sandboxes/iabc/connect").route->action, Action::connect);
}

TEST(Routes, LiteralsWinOverParameters) {
  EXPECT_EQ(match_route("GET", "/sandboxes/metrics").route->action, Action::all_metrics);
  EXPECT_EQ(match_route("GET", "/templates/aliases/base").route->action, Action::find_alias);
}

TEST(Routes, SegmentsAreSplitBeforeTheyAreDecoded) {
  const Match match = match_route("GET", "/templates/aliases/team%2Fname%3Atag");
  ASSERT_NE(match.route, nullptr);
  EXPECT_EQ(match.params, std::vector<std::string>{"team/name:tag"});
  EXPECT_EQ(match_route("GET", "/sandboxes%2Fiabc").route, nullptr);
}

TEST(Routes, UnknownPathsAndWrongMethodsDiffer) {
  for (const char* path : {"/", "", "/nothing", "/sandboxes/", "/sandboxes/a/b", "/sandboxes/%zz",
                           "sandboxes", "/a/b/c/d/e/f/g/h/i/j/k"}) {
    const Match match = match_route("GET", path);
    EXPECT_EQ(match.route, nullptr) << path;
    EXPECT_TRUE(match.allow.empty()) << path;
  }
  const Match match = match_route("PATCH", "/sandboxes/iabc");
  EXPECT_EQ(match.route, nullptr);
  EXPECT_EQ(match.allow, "GET, DELETE");
}

TEST(Routes, ControlPathsNeedAKey) {
  EXPECT_TRUE(is_control_path("/sandboxes"));
  EXPECT_TRUE(is_control_path("/sandboxes/iabc/connect"));
  EXPECT_TRUE(is_control_path("/v2/sandboxes/iabc/connect"));
  EXPECT_TRUE(is_control_path("/teams"));
  EXPECT_TRUE(is_control_path("/admin/sandboxes/running-counts"));
  EXPECT_FALSE(is_control_path("/health"));
  EXPECT_FALSE(is_control_path("/files"));
  EXPECT_FALSE(is_control_path("/process.Process/Start"));
}

}  // namespace
}  // namespace atl::api
