#include "mcp/outcome.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace atl::mcp {
namespace {

TEST(Outcome, ASandboxThatIsLostIsNoMissingFile) {
  for (const char* text :
       {"the sandbox i123 does not run", "The sandbox was not found", "sandbox i123 not found"}) {
    const Error error = make_error(Errc::not_found, text);
    EXPECT_TRUE(is_lost_sandbox(error)) << text;
    EXPECT_EQ(to_tool_error(error).code, "sandbox_unavailable") << text;
  }
  EXPECT_FALSE(is_lost_sandbox(make_error(Errc::not_found, "file not found: lstat /x")));
  EXPECT_FALSE(is_lost_sandbox(make_error(Errc::internal, "the sandbox i123 does not run")));
  EXPECT_EQ(to_tool_error(make_error(Errc::not_found, "file not found: lstat /x")).code,
            "not_found");
}

TEST(Outcome, WhatTheKernelSaysOfAPath) {
  const auto code = [](const char* text) {
    return to_tool_error(make_error(Errc::internal, text)).code;
  };
  EXPECT_EQ(code("error getting file info: lstat /home/user/f/x: not a directory"),
            "not_a_directory");
  EXPECT_EQ(code("path is a file: /home/user/f"), "not_a_directory");
  EXPECT_EQ(code("error getting file info: lstat /home/user/aaa: file name too long"),
            "invalid_path");
  const ToolError other = to_tool_error(make_error(Errc::internal, "a secret of the server"));
  EXPECT_EQ(other.code, "internal_error");
  EXPECT_EQ(other.message.find("secret"), std::string::npos);
}

TEST(Outcome, NoRoomForAProcessIsNoFullDisk) {
  for (const char* text :
       {"there is no room for one more process", "clone: Resource temporarily unavailable"}) {
    EXPECT_EQ(to_tool_error(make_error(Errc::resource_exhausted, text)).code,
              "sandbox_unavailable");
  }
  EXPECT_EQ(to_tool_error(Error{Errc::resource_exhausted, EAGAIN, "fork"}).code,
            "sandbox_unavailable");
  EXPECT_EQ(to_tool_error(make_error(Errc::resource_exhausted, "not enough disk space")).code,
            "no_space");
}

}  // namespace
}  // namespace atl::mcp
