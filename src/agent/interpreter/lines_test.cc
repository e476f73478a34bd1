// JSON that is checked and never built, and the lines that the agent makes itself.
#include "agent/interpreter/lines.h"

#include <gmock/gmock.h>

#include <cstring>

#include "agent/interpreter/languages.h"
#include "base/json.h"

namespace atl::agent::interpreter {
namespace {

JsonFault scan(std::string_view text, JsonForm form = JsonForm::request) {
  JsonMembers members;
  return scan_object(text, form, 8, members);
}

TEST(JsonScan, AcceptsWhatIsJson) {
  for (const char* text :
       {"{}", " {\n} ", R"({"a":1,"b":[],"c":{"d":[1,2,{"e":null}]},"f":true,"g":false})",
        R"({"a":-0,"b":0.5e+10,"c":1E-3,"d":10})", R"({"a":"\"\\\/\b\f\n\r\t\u0000\uD83D\uDE00"})",
        "{\"a\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 and a longer text\"}"}) {
    EXPECT_EQ(scan(text), JsonFault::none) << text;
    EXPECT_TRUE(parse_json(text).ok()) << text;
  }
}

TEST(JsonScan, RefusesWhatIsNot) {
  for (const char* text : {"",
                           "{",
                           "}",
                           "{}}",
                           "{} x",
                           R"({"a"})",
                           R"({"a":})",
                           R"({"a":1,})",
                           R"({,"a":1})",
                           R"({a:1})",
                           R"({"a":01})",
                           R"({"a":+1})",
                           R"({"a":.5})",
                           R"({"a":1.})",
                           R"({"a":1e})",
                           R"({"a":NaN})",
                           R"({"a":Infinity})",
                           R"({"a":nul})",
                           R"({"a":[1,]})",
                           R"({"a":[1 2]})",
                           R"({"a":"\x"})",
                           R"({"a":"\u12g4"})",
                           R"({"a":"\ud800"})",
                           R"({"a":"\ud800\u0041"})",
                           R"({"a":"\udc00"})",
                           "{\"a\":\"\n\"}",
                           "{\"a\":\"\x01\"}",
                           "{\"a\":\"\xff\"}",
                           "{\"a\":\"\xc3\"}",
                           "{\"a\":\"\xed\xa0\x80\"}",
                           "{\"a\":\"\xc0\x80\"}",
                           R"({"a":"b)"}) {
    EXPECT_EQ(scan(text), JsonFault::malformed) << text;
    EXPECT_FALSE(parse_json(text).ok()) << text;
  }
  EXPECT_EQ(scan("[1]"), JsonFault::not_an_object);
  EXPECT_EQ(scan("\"text\""), JsonFault::not_an_object);
  EXPECT_EQ(scan(R"({"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1})"),
            JsonFault::too_many_members);
  EXPECT_EQ(scan(std::string(2'000'000, '[')), JsonFault::malformed);
  EXPECT_EQ(scan("{\"a\":" + std::string(2'000'000, '[')), JsonFault::malformed);
}

TEST(JsonScan, LinesAreAscii) {
  EXPECT_EQ(scan("{\"a\":\"\xc3\xa9\"}", JsonForm::line), JsonFault::malformed);
  EXPECT_EQ(scan(R"({"a":"\ud800"})", JsonForm::line), JsonFault::none);
  EXPECT_EQ(scan(" {}", JsonForm::line), JsonFault::malformed);
  EXPECT_EQ(scan("{} ", JsonForm::line), JsonFault::malformed);
}

TEST(JsonScan, EveryByteOfATextIsLookedAt) {
  for (const char bad : {'"', '\x1f', '\x80', '\n'}) {
    for (std::size_t at = 0; at < 40; ++at) {
      std::string text(40, 'x');
      text[at] = bad;
      EXPECT_EQ(scan("{\"a\":\"" + text + "\"}"), JsonFault::malformed) << at;
    }
  }
}

TEST(JsonScan, MembersAndTexts) {
  JsonMembers members;
  ASSERT_EQ(scan_object(R"({"a": [1.0], "b":"x", "b" : "y\u00e9\ud83d\ude00\n"})",
                        JsonForm::request, 8, members),
            JsonFault::none);
  EXPECT_EQ(find_member(members, "a"), "[1.0]");
  EXPECT_EQ(json_text(find_member(members, "b")), "yé😀\n");
  EXPECT_EQ(find_member(members, "c"), "");
  EXPECT_FALSE(json_text("5"));
}

TEST(Lines, OfRunners) {
  JsonMembers scratch;
  EXPECT_EQ(read_line(R"({"type":"started","execution_count":12})", scratch).execution_count, 12);
  EXPECT_EQ(read_line(R"({"type":"started"})", scratch).type, LineType::invalid);
  EXPECT_EQ(read_line(R"({"type":"started","execution_count":1.5})", scratch).type,
            LineType::invalid);
  EXPECT_TRUE(read_line(R"({"type":"done","restart":true})", scratch).restart);
  EXPECT_FALSE(read_line(R"({"type":"done"})", scratch).restart);
  EXPECT_EQ(read_line(R"({"type":"keepalive"})", scratch).type, LineType::invalid);
  EXPECT_EQ(read_line(R"({"text":"","type":"stderr"})", scratch).type, LineType::output);
}

TEST(Lines, OfTheAgentAreAsciiJson) {
  const std::string text = "a\"\\\n\t\x7f\x01é€😀\xff\xe2\x82";
  const std::string quoted = json_quote(text);
  for (const char c : quoted) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
  EXPECT_EQ(parse_json(quoted)->as_string(), "a\"\\\n\t\x7f\x01é€😀\uFFFD\uFFFD");
  const auto line = parse_json(output_line(Output::err, text))->as_object();
  EXPECT_EQ(line.at("type"), "stderr");
  EXPECT_THAT(std::string(line.at("timestamp").as_string()),
              ::testing::MatchesRegex("2...-..-..T..:..:..[.]......[+]00:00"));
  EXPECT_EQ(parse_json(start_line({"A=b=c", "D="}, "/é"))->at("env").at("A"), "b=c");
}

TEST(Lines, CharactersAreNotCut) {
  TextJoin join;
  std::string out;
  for (const char c : std::string_view("é€😀\xff z")) {
    const std::string piece = join.add(std::string_view(&c, 1));
    if (!piece.empty()) out += std::string(parse_json(json_quote(piece))->as_string());
  }
  EXPECT_EQ(out, "é€😀\uFFFD z");
}

TEST(Lines, BufferCutsLinesAndSkipsLongOnes) {
  LineBuffer buffer;
  LineBuffer::Line line;
  const auto put = [&](std::string_view bytes) {
    const auto space = buffer.space();
    ASSERT_GE(space.size(), bytes.size());
    std::memcpy(space.data(), bytes.data(), bytes.size());
    buffer.added(bytes.size());
  };
  EXPECT_FALSE(buffer.next(line));
  put("one\ntw");
  ASSERT_TRUE(buffer.next(line));
  EXPECT_EQ(line.text, "one");
  EXPECT_FALSE(buffer.next(line));
  put("o\n\n");
  ASSERT_TRUE(buffer.next(line));
  EXPECT_EQ(line.text, "two");
  ASSERT_TRUE(buffer.next(line));
  EXPECT_EQ(line.text, "");
  int oversized = 0;
  const std::string piece(64 << 10, 'x');
  for (std::size_t sent = 0; sent < 2 * kMaxLine; sent += piece.size()) {
    put(piece);
    while (buffer.next(line)) oversized += line.oversized ? 1 : 100;
  }
  EXPECT_EQ(oversized, 1);
  put("end\nnext\n");
  ASSERT_TRUE(buffer.next(line));
  EXPECT_EQ(line.text, "next");
  EXPECT_FALSE(buffer.next(line));
}

TEST(Languages, NamesAndAliases) {
  for (const auto& [given, name] :
       std::vector<std::pair<std::string, std::string>>{{"", "python"},
                                                        {" Python ", "python"},
                                                        {"python3", "python"},
                                                        {"JS", "javascript"},
                                                        {"nodejs", "javascript"},
                                                        {"node", "javascript"},
                                                        {"ts", "typescript"},
                                                        {"R", "r"},
                                                        {"Go", "go"}}) {
    EXPECT_EQ(normalise_language(given), name);
  }
  EXPECT_EQ(find_language("go"), nullptr);
  const auto words = command_line(*find_language("python"), "/k");
  EXPECT_EQ(words.back(), "/k/python/main.py");
}

}  // namespace
}  // namespace atl::agent::interpreter
