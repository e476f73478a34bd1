#include "cli/display.h"

#include <gtest/gtest.h>

namespace atl::cli {
namespace {

client::Execution failed(std::string name, std::string value) {
  client::Execution execution;
  execution.error = client::CellError{std::move(name), std::move(value), ""};
  return execution;
}

TEST(Display, ExitStatus) {
  EXPECT_EQ(exit_status({}), 0);
  EXPECT_EQ(exit_status(failed("NameError", "3")), 1);
  EXPECT_EQ(exit_status(failed("SystemExit", "3")), 3);
  EXPECT_EQ(exit_status(failed("SystemExit", "0")), 0);
  EXPECT_EQ(exit_status(failed("SystemExit", "None")), 0);
  EXPECT_EQ(exit_status(failed("SystemExit", "no such file")), 1);
  EXPECT_EQ(exit_status(failed("", "127")), 127);
  EXPECT_EQ(exit_status(failed("", "Cell has trailing backslash")), 1);
}

TEST(Display, Tracebacks) {
  EXPECT_EQ(readable_traceback({"NameError", "x",
                                "---------------------------------------------------------------"
                                "NameError      Traceback (most recent call last)"
                                "Cell In[4], line 1\n----> 1 xyz\nNameError: x"}),
            "NameError      Traceback (most recent call last)\n"
            "Cell In[4], line 1\n----> 1 xyz\nNameError: x");
  EXPECT_EQ(readable_traceback({"TypeError", "x", "TypeError: x\n    at f"}),
            "TypeError: x\n    at f");
  EXPECT_EQ(readable_traceback({"ContextRestarting", "Context was restarted", ""}),
            "ContextRestarting: Context was restarted");
  EXPECT_EQ(readable_traceback({"", "127", ""}), "");
  EXPECT_EQ(readable_traceback({"", "", "----------"}), "");
}

}  // namespace
}  // namespace atl::cli
