#include "session/options.h"

#include <gtest/gtest.h>

#include "session/encode.h"

namespace atl::session {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

TEST(Key, MayBeAnyText) {
  for (const char* key : {"a", "user 1/chat-7", "Grüße", "a:b*{}?"})
    EXPECT_TRUE(check_key(key).ok());
  EXPECT_TRUE(check_key(std::string(256, 'x')).ok());
}

TEST(Key, MustBeText) {
  for (const std::string& key : {std::string(), std::string(257, 'x'), std::string("a\nb"),
                                 std::string("\xff\xfe"), std::string("a\0b", 3)}) {
    const auto checked = check_key(key);
    ASSERT_FALSE(checked.ok());
    EXPECT_EQ(checked.error().code, Errc::invalid_argument);
  }
}

TEST(SessionOptions, Defaults) {
  const Options options = decode_options("").value();
  EXPECT_EQ(options.template_reference, "code-interpreter-v1");
  EXPECT_EQ(options.timeout, seconds(900));
  EXPECT_EQ(options.pause_after, seconds(900));
  EXPECT_EQ(options.ttl, hours(12));
  EXPECT_FALSE(options.update.timeout || options.update.ttl || options.update.metadata);
  EXPECT_EQ(decode_options(R"({"timeout":86400})")->ttl, hours(48)) << "outlives two runs";
}

TEST(SessionOptions, OnlyWhatIsNamedChanges) {
  Options there =
      decode_options(R"({"timeout":60,"metadata":{"a":"b"},"templateID":"base"})").value();
  const Options asked = decode_options(R"({"pauseAfter":5,"templateID":"other"})").value();
  there = updated(there, asked.update);
  EXPECT_EQ(there.timeout, seconds(60));
  EXPECT_EQ(there.pause_after, seconds(5));
  EXPECT_EQ(there.metadata.at("a"), "b");
  EXPECT_EQ(there.template_reference, "base");
}

TEST(SessionOptions, ComeBackAsTheyWere) {
  const char* text =
      R"({"templateID":"base","timeout":60,"pauseAfter":0,"ttl":7200,"metadata":{"a":"b"},)"
      R"("workspace":"w","envVars":{"E":"1"},"allow_internet_access":false,)"
      R"("network":{"denyOut":["10.0.0.0/8"]}})";
  const Options options = decode_options(text).value();
  const Options again = decode_options(json::serialize(encode_options(options))).value();
  EXPECT_EQ(encode_options(again), encode_options(options));
  EXPECT_EQ(encode_options(options), parse_json(text).value());
}

TEST(SessionOptions, MeanTheSameToAnotherServer) {
  Options options = decode_options(R"({"timeout":60,"workspace":"","templateID":"base"})").value();
  options.ttl = hours(5);  // for a new session only
  const Options there = decode_options(json::serialize(encode_request(options))).value();
  EXPECT_EQ(there.update.timeout, seconds(60));
  EXPECT_EQ(there.update.workspace, "");
  EXPECT_FALSE(there.update.ttl || there.update.pause_after || there.update.metadata);
  EXPECT_EQ(there.ttl, hours(5));
  EXPECT_EQ(encode_options(there), encode_options(options));
}

TEST(SessionOptions, Refused) {
  for (const char* text : {"[]",
                           "{",
                           R"({"timeout":0})",
                           R"({"timeout":86401})",
                           R"({"timeout":"60"})",
                           R"({"pauseAfter":-1})",
                           R"({"ttl":0})",
                           R"({"ttl":2592001})",
                           R"({"metadata":{"a":1}})",
                           R"({"metadata":{"atoll.session":"x"}})",
                           R"({"workspace":"a/b"})",
                           R"({"workspace":7})",
                           R"({"workspace":"a b"})",
                           R"({"workspace":".a"})",
                           R"({"workspace":"\u00e4"})",
                           R"({"envVars":{"A=B":"1"}})",
                           R"({"network":[]})",
                           R"({"network":{"denyOut":["x y"]}})",
                           R"({"allow_internet_access":"no"})",
                           R"({"templateID":7})"}) {
    const auto options = decode_options(text);
    ASSERT_FALSE(options.ok()) << text;
    EXPECT_EQ(options.error().code, Errc::invalid_argument) << text;
  }
}

TEST(SessionOptions, NameAWorkspaceAsWorkspacesAreCalled) {
  EXPECT_TRUE(decode_options(R"({"workspace":"user.42_a-B"})").ok());
  EXPECT_TRUE(decode_options(R"({"workspace":")" + std::string(64, 'w') + R"("})").ok());
  EXPECT_FALSE(decode_options(R"({"workspace":")" + std::string(65, 'w') + R"("})").ok());
  // Also those that come from no request.
  Options made;
  made.workspace = "a b";
  EXPECT_EQ(create_command({}, "key", "", made).error().code, Errc::invalid_argument);
  made.workspace = "";
  made.update.workspace = "../a";
  EXPECT_EQ(create_command({}, "key", "", made).error().code, Errc::invalid_argument);
}

TEST(SessionOptions, MakeASandboxThatIsPausedAndWoken) {
  const auto command =
      create_command({"t", "k", "p"}, "key", "claim", decode_options(R"({"timeout":60})").value())
          .value();
  EXPECT_TRUE(command.secure && command.auto_pause && command.auto_pause_memory &&
              command.auto_resume);
  EXPECT_EQ(command.metadata.at("atoll.session"), "key");
  EXPECT_EQ(command.metadata.at("atoll.session.claim"), "claim");
  EXPECT_EQ(command.caller.team_id, "t");
}

TEST(SessionJson, ComesBackAsItWas) {
  Acquired acquired{.sandbox = {.record = {.id = *SandboxId::parse("i1")}}};
  acquired.session = {.key = "k", .sandbox_id = "i1", .state = "running"};
  acquired.session.options = decode_options(R"({"timeout":60,"metadata":{"a":"b"}})").value();
  acquired.session.options.update = {};
  acquired.session.node = "n";
  acquired.session.end_at = from_ns(5'000'000'000);
  acquired.came = Came::resumed;
  acquired.sandbox.record.template_id = "tpl";
  acquired.sandbox.record.envd_version = "0.6.13";
  acquired.sandbox.record.end_at = from_ns(5'000'000'000);
  acquired.sandbox.access_token = "secret";
  const json::object told = acquired_json(acquired, "example.org");
  EXPECT_EQ(told.at("came"), "resumed");
  EXPECT_EQ(told.at("created"), false);
  EXPECT_EQ(told.at("domain"), "example.org");
  const auto again = parse_acquired(told);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(acquired_json(*again, "example.org"), told);
  EXPECT_FALSE(parse_acquired(json::object{{"key", "k"}}).ok());
  EXPECT_FALSE(parse_acquired(json::array{}).ok());
}

}  // namespace
}  // namespace atl::session
