#include "net/origin.h"

#include <gtest/gtest.h>

namespace atl::net {
namespace {

TEST(Origin, OnlyThisMachineAndTheDomain) {
  EXPECT_TRUE(is_allowed_origin("", ""));
  EXPECT_TRUE(is_allowed_origin("http://localhost:5173", ""));
  EXPECT_TRUE(is_allowed_origin("http://127.0.0.1", ""));
  EXPECT_TRUE(is_allowed_origin("http://[::1]:80", ""));
  EXPECT_TRUE(is_allowed_origin("https://api.atoll.test", "atoll.test"));
  EXPECT_TRUE(is_allowed_origin("https://Atoll.test", "atoll.test"));
  for (const char* bad : {"http://evil.example", "http://localhost.evil.example", "null", "http://",
                          "https://8000-i1.atoll.test", "https://xapi.atoll.test",
                          "http://a@localhost", "http://evilatoll.test"})
    EXPECT_FALSE(is_allowed_origin(bad, "atoll.test")) << bad;
  EXPECT_FALSE(is_allowed_origin("https://atoll.test", ""));
}

}  // namespace
}  // namespace atl::net
