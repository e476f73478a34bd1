#include "rpc/codec.h"

#include <gtest/gtest.h>

#include "agent/filesystem.pb.h"
#include "agent/process.pb.h"
#include "rpc/envelope.h"
#include "rpc/error_body.h"

namespace atl::rpc {
namespace {

TEST(Codec, JsonAcceptsBothSpellingsAndUnknownFields) {
  filesystem::WatchDirRequest camel, snake;
  ASSERT_TRUE(
      decode(Codec::json, R"({"path":"/x","includeEntry":true,"later":{"a":[1]}})", camel).ok());
  ASSERT_TRUE(decode(Codec::json, R"({"path":"/x","include_entry":true})", snake).ok());
  EXPECT_TRUE(camel.include_entry());
  EXPECT_TRUE(snake.include_entry());
}

TEST(Codec, JsonBytesInEveryBase64) {
  // fb ff: "+/8=" in the standard alphabet, "-_8" in the other one without padding.
  for (const char* text : {"+/8=", "+/8", "-_8=", "-_8"}) {
    process::SendInputRequest in;
    const std::string body =
        std::string(R"({"process":{"pid":7},"input":{"stdin":")") + text + "\"}}";
    ASSERT_TRUE(decode(Codec::json, body, in).ok()) << text;
    EXPECT_EQ(in.input().stdin(), std::string("\xfb\xff")) << text;
    EXPECT_EQ(in.process().pid(), 7u);
  }
}

TEST(Codec, JsonEnumsByNameAndNumber) {
  process::SendSignalRequest in;
  ASSERT_TRUE(decode(Codec::json, R"({"signal":"SIGNAL_SIGKILL"})", in).ok());
  EXPECT_EQ(in.signal(), process::SIGNAL_SIGKILL);
  ASSERT_TRUE(decode(Codec::json, R"({"signal":15})", in).ok());
  EXPECT_EQ(in.signal(), process::SIGNAL_SIGTERM);
}

TEST(Codec, JsonPresence) {
  process::StartRequest in;
  ASSERT_TRUE(decode(Codec::json, R"({"process":{"cmd":"x"},"stdin":false})", in).ok());
  EXPECT_TRUE(in.has_stdin());
  EXPECT_FALSE(in.has_pty());
  ASSERT_TRUE(decode(Codec::json, R"({"process":{"cmd":"x"}})", in).ok());
  EXPECT_FALSE(in.has_stdin());
}

TEST(Codec, JsonOutput) {
  process::StartResponse out;
  auto* end = out.mutable_event()->mutable_end();
  end->set_exited(true);
  end->set_status("exit status 0");
  EXPECT_EQ(*encode(Codec::json, out),
            R"({"event":{"end":{"exited":true,"status":"exit status 0"}}})");
  out.mutable_event()->mutable_data()->set_stdout("hi\n");
  EXPECT_EQ(*encode(Codec::json, out), R"({"event":{"data":{"stdout":"aGkK"}}})");
  filesystem::StatResponse stat;
  stat.mutable_entry()->set_size(5'000'000'000);
  stat.mutable_entry()->set_type(filesystem::FILE_TYPE_FILE);
  stat.mutable_entry()->mutable_modified_time()->set_seconds(1767225600);
  stat.mutable_entry()->mutable_modified_time()->set_nanos(123456789);
  EXPECT_EQ(
      *encode(Codec::json, stat),
      R"({"entry":{"type":"FILE_TYPE_FILE","size":"5000000000","modifiedTime":"2026-01-01T00:00:00.123456789Z"}})");
  EXPECT_EQ(*encode(Codec::json, process::ListResponse()), "{}");
}

TEST(Codec, MalformedInputIsInvalidArgument) {
  process::StartRequest in;
  for (const char* text :
       {"", "  ", "{", "[]", "nope", R"({"process":5})", R"({"stdin":[1]})", "{}x", "\"\xff\""}) {
    const auto result = decode(Codec::json, text, in);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().code, Errc::invalid_argument) << text;
  }
  EXPECT_EQ(decode(Codec::proto, "\xff\xff\xff", in).error().code, Errc::invalid_argument);
  EXPECT_TRUE(decode(Codec::proto, "", in).ok());
}

TEST(Codec, DeeplyNestedJsonIsRefused) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"a":)";
  process::StartRequest in;
  EXPECT_FALSE(decode(Codec::json, deep, in).ok());
}

TEST(Codec, ProtoRoundTrip) {
  process::StartRequest in, back;
  in.mutable_process()->set_cmd("/bin/sh");
  (*in.mutable_process()->mutable_envs())["A"] = "b";
  in.mutable_pty()->mutable_size()->set_cols(80);
  ASSERT_TRUE(decode(Codec::proto, *encode(Codec::proto, in), back).ok());
  EXPECT_EQ(back.process().envs().at("A"), "b");
  EXPECT_EQ(back.pty().size().cols(), 80u);
}

TEST(Envelope, AnyCutGivesTheSameEnvelopes) {
  const std::string bytes =
      make_envelope(0, "hello") + make_envelope(0, "") + make_envelope(kFlagEndStream, "{}");
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    EnvelopeParser parser(100);
    std::vector<Envelope> got;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      parser.feed(std::string_view(bytes).substr(at, step));
      for (;;) {
        auto next = parser.next();
        ASSERT_TRUE(next.ok());
        if (!next->has_value()) break;
        got.push_back(**next);
      }
    }
    EXPECT_EQ(got, (std::vector<Envelope>{{0, "hello"}, {0, ""}, {kFlagEndStream, "{}"}})) << step;
    EXPECT_FALSE(parser.partial());
  }
}

TEST(Envelope, LimitIsCheckedFromTheLengthAlone) {
  EnvelopeParser parser(4);
  parser.feed(make_envelope(0, "12345").substr(0, 5));
  EXPECT_EQ(parser.next().error().code, Errc::resource_exhausted);
  EnvelopeParser huge(1 << 20);
  huge.feed(std::string_view("\0\xff\xff\xff\xff", 5));
  EXPECT_EQ(huge.next().error().code, Errc::resource_exhausted);
}

TEST(ErrorBody, BothDirections) {
  const Error error = make_error(Errc::not_found, "process with pid 7 not found");
  EXPECT_EQ(error_body(error), R"({"code":"not_found","message":"process with pid 7 not found"})");
  EXPECT_EQ(end_stream_body({}), "{}");
  EXPECT_EQ(end_stream_body(error),
            R"({"error":{"code":"not_found","message":"process with pid 7 not found"}})");
  EXPECT_TRUE(parse_end_stream("{}").ok());
  EXPECT_EQ(parse_end_stream(end_stream_body(error)).error().code, Errc::not_found);
  EXPECT_FALSE(parse_end_stream("").ok());
  EXPECT_EQ(parse_error_body(400, error_body(error)).code, Errc::not_found);
  EXPECT_EQ(parse_error_body(502, R"({"code":502,"message":"gone"})").code, Errc::unavailable);
  EXPECT_EQ(parse_error_body(502, R"({"code":502,"message":"gone"})").message, "gone");
  EXPECT_EQ(parse_error_body(401, "no").code, Errc::unauthenticated);
  // Not UTF-8: readable all the same.
  EXPECT_EQ(error_body(make_error(Errc::internal, "a\xff")),
            R"({"code":"internal","message":"a?"})");
}

}  // namespace
}  // namespace atl::rpc
