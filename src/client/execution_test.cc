#include "client/execution.h"

#include <gtest/gtest.h>

namespace atl::client {
namespace {

constexpr std::string_view kBegin = R"({"type": "number_of_executions", "execution_count": 3})"
                                    "\n";
constexpr std::string_view kEnd = R"({"type": "end_of_execution"})"
                                  "\n";

Result<Execution> read(std::string_view body, std::size_t piece, ExecutionEvents events = {}) {
  ExecutionReader reader(std::move(events));
  while (!body.empty()) {
    ATOLL_TRY(reader.feed(body.substr(0, piece)));
    body.remove_prefix(std::min(piece, body.size()));
  }
  return std::move(reader).finish();
}

TEST(ExecutionReader, TakesLinesInPiecesOfAnySize) {
  const std::string body =
      std::string(kBegin) +
      R"({"type": "stdout", "text": "out\n", "timestamp": "2026-11-16T00:26:58.450412+00:00"})"
      "\n"
      R"({"type": "keepalive"})"
      "\n"
      R"({"type": "stderr", "text": "\u00e9\ud83d\ude00", "timestamp": "t"})"
      "\n"
      R"({"type": "result", "text": "3", "data": {"a": [1.0, null]}, "extra": {}, "is_main_result": true})"
      "\n"
      R"({"type": "something new", "x": 1})"
      "\n"
      R"({"type": "error", "name": "NameError", "value": "v", "traceback": "tb"})"
      "\n" +
      std::string(kEnd);
  for (const std::size_t piece : {std::size_t(1), std::size_t(7), std::size_t(100), body.size()}) {
    auto execution = read(body, piece);
    ASSERT_TRUE(execution.ok()) << execution.error().message;
    EXPECT_EQ(execution->count, 3);
    EXPECT_EQ(execution->out, std::vector<std::string>{"out\n"});
    EXPECT_EQ(execution->err, std::vector<std::string>{"\u00e9\U0001F600"});
    ASSERT_EQ(execution->results.size(), 1u);
    EXPECT_TRUE(execution->results[0].is_main);
    EXPECT_EQ(execution->results[0].text_form("text"), "3");
    EXPECT_EQ(execution->results[0].text_form("data"), "");
    EXPECT_EQ(execution->error->name, "NameError");
    EXPECT_EQ(json::serialize(execution->to_json()),
              R"({"execution_count":3,"results":[{"text":"3","data":{"a":[1E0,null]},"extra":{},)"
              R"("is_main_result":true}],"logs":{"stdout":["out\n"],"stderr":["é😀"]},)"
              R"("error":{"name":"NameError","value":"v","traceback":"tb"}})");
  }
}

TEST(ExecutionReader, TellsWhileItReads) {
  std::string seen;
  ExecutionEvents events;
  events.on_stdout = [&](std::string_view text) { seen += text; };
  events.on_result = [&](const CellResult& result) { seen += result.text_form("text"); };
  ExecutionReader reader(std::move(events));
  ASSERT_TRUE(reader
                  .feed(R"({"type":"stdout","text":"a"})"
                        "\n{")
                  .ok());
  EXPECT_EQ(seen, "a");
  ASSERT_TRUE(reader
                  .feed(R"("type":"result","text":"b"})"
                        "\n")
                  .ok());
  EXPECT_EQ(seen, "ab");
}

TEST(ExecutionReader, RefusesWhatIsNoAnswer) {
  for (const std::string_view body :
       {"\n", "[]\n", "{}\n", "{\"type\":1}\n", "{\"type\":\"stdout\"}\n", "<html>\n",
        "{\"type\":\"error\",\"name\":\"x\",\"value\":\"y\"}\n",
        "{\"type\":\"number_of_executions\",\"execution_count\":\"1\"}\n",
        "{\"type\":\"end_of_execution\"}\n{\"type\":\"end_of_execution\"}\n"}) {
    EXPECT_FALSE(read(body, body.size()).ok()) << body;
  }
}

TEST(ExecutionReader, AnAnswerThatBreaksOffIsNone) {
  EXPECT_EQ(read("", 1).error().code, Errc::data_loss);
  EXPECT_EQ(read(kBegin, 10).error().code, Errc::data_loss);
  EXPECT_EQ(read(kEnd.substr(0, kEnd.size() - 1), 10).error().code, Errc::data_loss);
  EXPECT_TRUE(read(kEnd, 10).ok());
}

TEST(ExecutionReader, ALineHasAnEnd) {
  ExecutionReader reader;
  const std::string piece(1 << 20, 'x');
  Result<void> fed;
  std::size_t total = 0;
  while ((fed = reader.feed(piece)).ok())
    ASSERT_LE(total += piece.size(), ExecutionReader::kMaxLine);
  EXPECT_EQ(fed.error().code, Errc::data_loss);
}

}  // namespace
}  // namespace atl::client
