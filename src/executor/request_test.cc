#include "executor/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/encoding.h"
#include "base/json.h"
#include "executor/runners.h"

namespace atl::executor {
namespace {

using ::testing::HasSubstr;

std::string body(std::string_view code, std::string_view more = "") {
  return R"({"code_b64":")" + base64_encode(code) + '"' + std::string(more) + "}";
}

Refused refused(std::string text) {
  auto decoded = decode_run(std::move(text));
  const auto* wrong = std::get_if<Refused>(&decoded);
  EXPECT_NE(wrong, nullptr);
  return wrong != nullptr ? *wrong : Refused{};
}

TEST(RunRequest, Base64IsStrict) {
  for (const char* code : {"", "a", "ab", "abc", "abcd", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x8d"}) {
    const auto decoded = decode_code(base64_encode(code));
    ASSERT_TRUE(decoded.ok()) << code;
    EXPECT_EQ(*decoded, code);
  }
  for (const char* bad :
       {"YQ", "YQ=", "YQ===", "=YQ=", "Y=Q=", "Y", "YWJ", "YWJj\n", " YWJj", "YW Jj", "YWJ-",
        "YWJ_", "YWJ*", "====", "YWJjYQ=", "YQ==YQ==", "\xc3\xa9"}) {
    EXPECT_EQ(decode_code(bad).error().message, "code_b64 is not valid base64") << bad;
  }
  for (const std::string_view bytes : {"\xff", "\xc3", "ab\x80", "\xed\xa0\x80", "\xc0\xaf"}) {
    EXPECT_EQ(decode_code(base64_encode(bytes)).error().message, "code_b64 does not contain UTF-8");
  }
}

TEST(RunRequest, GoodOnes) {
  const auto language = [](std::string text) {
    auto decoded = decode_run(std::move(text));
    const auto* good = std::get_if<RunRequest>(&decoded);
    EXPECT_NE(good, nullptr);
    return good != nullptr ? good->language : Language::python;
  };
  EXPECT_EQ(language(body("x")), Language::python);
  EXPECT_EQ(language(body("x", R"(,"language":"python")")), Language::python);
  EXPECT_EQ(language(body("x", R"(,"language":"nodejs")")), Language::nodejs);
  EXPECT_EQ(language(body("x", R"(,"arguments":{"a":[1,{"b":null}]})")), Language::python);
  EXPECT_EQ(language(body("x", R"(,"arguments":null)")), Language::python);
  EXPECT_EQ(language(body("x", R"(,"unknown":1)")), Language::python);
  const std::string exact = body("x", R"(, "arguments" : {"n":123456789012345678901234567890})");
  EXPECT_EQ(std::get<RunRequest>(decode_run(exact)).body, exact) << "it goes inside as it came";
}

TEST(RunRequest, OnlyTheTopCounts) {
  const auto decoded = decode_run(body(
      "x", R"(,"arguments":{"language":"ruby","code_b64":5,"arguments":[]},"language":"nodejs")"));
  ASSERT_TRUE(std::holds_alternative<RunRequest>(decoded));
  EXPECT_EQ(std::get<RunRequest>(decoded).language, Language::nodejs);
  // As Python and JavaScript read it: the last one.
  EXPECT_EQ(refused(body("x", R"(,"language":"python","language":"ruby")")).field, "language");
  EXPECT_EQ(refused(R"([{"code_b64":"eA=="}])").type, "model_attributes_type");
  EXPECT_EQ(refused(R"({"x":{"code_b64":"eA=="}})").type, "missing");
  EXPECT_EQ(
      refused(body("x", R"(,"arguments":)" + std::string(100, '[') + std::string(100, ']'))).type,
      "json_invalid");
  // A key may come with escapes, in pieces.
  EXPECT_TRUE(std::holds_alternative<RunRequest>(decode_run(R"({"code\u005fb64":"eA=="})")));
}

TEST(RunRequest, BadOnesNameTheField) {
  EXPECT_EQ(refused("").field, "");
  EXPECT_EQ(refused("{").type, "json_invalid");
  EXPECT_EQ(refused(body("x") + " x").type, "json_invalid");
  EXPECT_EQ(refused(body("x", ",\"y\":\"\xff\"")).type, "json_invalid");
  EXPECT_EQ(refused("[]").field, "");
  EXPECT_EQ(refused("{}").type, "missing");
  EXPECT_EQ(refused("{}").field, "code_b64");
  EXPECT_EQ(refused(R"({"code_b64":5})").field, "code_b64");
  EXPECT_EQ(refused(R"({"code_b64":null})").field, "code_b64");
  EXPECT_EQ(refused(R"({"code_b64":"%"})").field, "code_b64");
  for (const char* language : {R"("ruby")", R"("Python")", R"("javascript")", R"("")", "null", "1"})
    EXPECT_EQ(refused(body("x", R"(,"language":)" + std::string(language))).field, "language");
  for (const char* arguments : {"[]", R"("a")", "1", "true"})
    EXPECT_EQ(refused(body("x", R"(,"arguments":)" + std::string(arguments))).field, "arguments");

  const auto encoded = parse_json(encode_refused(refused(R"({"code_b64":"%"})")));
  ASSERT_TRUE(encoded.ok());
  const json::object& object = encoded->as_object();
  EXPECT_EQ(object.at("code").as_int64(), 422);
  const json::object& entry = object.at("detail").as_array().at(0).as_object();
  EXPECT_EQ(entry.at("loc"), (json::array{"body", "code_b64"}));
  EXPECT_EQ(entry.at("type"), "value_error");
  EXPECT_EQ(entry.at("msg"), "Value error, code_b64 is not valid base64");
}

TEST(Runners, ArePartOfTheLibrary) {
  EXPECT_THAT(std::string(runner_of(Language::python)), HasSubstr("code_b64"));
  EXPECT_THAT(std::string(runner_of(Language::nodejs)), HasSubstr("code_b64"));
  EXPECT_THAT(std::string(checker_of(Language::python)), HasSubstr("ast.parse"));
  EXPECT_THAT(std::string(checker_of(Language::nodejs)), HasSubstr("acorn"));
  // Each is one argument of a program: at most 128 KiB.
  for (const Language language : {Language::python, Language::nodejs}) {
    EXPECT_LT(runner_of(language).size(), 100'000u);
    EXPECT_LT(checker_of(language).size(), 100'000u);
  }
}

}  // namespace
}  // namespace atl::executor
