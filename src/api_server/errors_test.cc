#include "api_server/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/json.h"
#include "engine/commands.h"

namespace atl::api {
namespace {

TEST(ApiErrors, EveryCodeHasAnIanaStatusAndItsBody) {
  const std::set<int> allowed = {400, 401, 403, 404, 409, 429, 500, 501, 503, 504};
  for (int code = int(Errc::canceled); code <= int(Errc::unauthenticated); ++code) {
    const ApiError error = to_api_error(make_error(Errc(code), "why"), Operation::start);
    EXPECT_TRUE(allowed.contains(error.status)) << code;
    const auto body = parse_json(encode(error)).value();
    EXPECT_EQ(body.at("code").to_number<int>(), error.status);
    EXPECT_FALSE(body.at("message").as_string().empty());
  }
  EXPECT_EQ(to_api_error(make_error(Errc::unavailable, "x"), Operation::start).error_code,
            "sandbox_capacity_unavailable");
  EXPECT_EQ(to_api_error(make_error(Errc::unavailable, "x")).error_code, "");
}

TEST(ApiErrors, TheTableHasEveryCodeOnceAndConnectAgrees) {
  std::set<Errc> seen;
  for (const ErrorRow& row : error_table()) {
    EXPECT_TRUE(seen.insert(row.code).second) << row.connect;
    EXPECT_EQ(row.connect, connect_name(row.code));
  }
  EXPECT_EQ(seen.size(), std::size_t(Errc::unauthenticated));
}

TEST(ApiErrors, WaitingIsSaidInHeadersWhereItHelps) {
  ApiError error{429, "wait"};
  EXPECT_FALSE(headers_of(error).has("Retry-After"));
  error.retry_after = std::chrono::seconds(2);
  EXPECT_EQ(headers_of(error).get("Retry-After"), "2");
  EXPECT_EQ(headers_of(error).get("RateLimit-Remaining"), "0");
  EXPECT_EQ(headers_of(error).get("RateLimit-Reset"), "2");
  const ApiError busy = to_api_error(make_error(Errc::unavailable, "the server is shutting down"));
  EXPECT_EQ(busy.message, "the server is shutting down. Try again in a moment.");
  EXPECT_TRUE(headers_of(busy).has("Retry-After"));
  EXPECT_FALSE(headers_of(to_api_error(make_error(Errc::not_found, "x"))).has("Retry-After"));
  const ApiError crowded = to_api_error(engine::transient_refusal("too many at once"));
  EXPECT_EQ(crowded.status, 429);
  EXPECT_EQ(headers_of(crowded).get("Retry-After"), "1");
  const ApiError full = to_api_error(make_error(Errc::resource_exhausted, "the limit"));
  EXPECT_EQ(full.status, 429);
  EXPECT_FALSE(headers_of(full).has("Retry-After")) << "waiting does not help";
}

// api/errors.md promises every status of the table, and Connect's names.
TEST(ApiErrors, TheDocumentListsThem) {
  std::ifstream in(ATOLL_ERRORS_MD);
  std::stringstream text;
  text << in.rdbuf();
  for (const ErrorRow& row : error_table()) {
    EXPECT_THAT(text.str(), ::testing::HasSubstr("| " + std::to_string(row.status) + " |"));
    EXPECT_THAT(text.str(), ::testing::HasSubstr("`" + std::string(row.connect) + "`"));
  }
}

}  // namespace
}  // namespace atl::api
