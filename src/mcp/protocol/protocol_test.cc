#include <gtest/gtest.h>

#include "mcp/protocol/message.h"
#include "mcp/protocol/sse.h"
#include "mcp/protocol/version.h"

namespace atl::mcp {
namespace {

const Message& message_of(const Incoming& incoming) {
  return std::get<Message>(incoming.messages.at(0));
}

int refused(std::string_view text) {
  const Incoming incoming = parse_incoming(text);
  EXPECT_EQ(incoming.messages.size(), 1u);
  const auto* malformed = std::get_if<Malformed>(&incoming.messages.at(0));
  EXPECT_NE(malformed, nullptr) << text;
  return malformed != nullptr ? int(malformed->code) : 0;
}

TEST(Message, Requests) {
  const Incoming one =
      parse_incoming(R"({"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}})");
  EXPECT_FALSE(one.batch);
  EXPECT_EQ(message_of(one).kind, Message::Kind::request);
  EXPECT_EQ(message_of(one).id, 7);
  EXPECT_EQ(message_of(one).method, "tools/call");
  EXPECT_EQ(message_of(one).params.at("name"), "x");
  const Incoming note = parse_incoming(R"({"jsonrpc":"2.0","method":"notifications/initialized"})");
  EXPECT_EQ(message_of(note).kind, Message::Kind::notification);
  const Incoming answer = parse_incoming(R"({"jsonrpc":"2.0","id":"a","result":{}})");
  EXPECT_EQ(message_of(answer).kind, Message::Kind::response);
}

TEST(Message, WhatIsNone) {
  EXPECT_EQ(refused(""), -32700);
  EXPECT_EQ(refused("{"), -32700);
  EXPECT_EQ(refused("{} x"), -32700);
  EXPECT_EQ(refused(std::string(1000, '[')), -32700);
  EXPECT_EQ(refused("\"x\""), -32600);
  EXPECT_EQ(refused("[]"), -32600);
  EXPECT_EQ(refused("{}"), -32600);
  EXPECT_EQ(refused(R"({"jsonrpc":"1.0","id":1,"method":"ping"})"), -32600);
  EXPECT_EQ(refused(R"({"jsonrpc":"2.0","id":1})"), -32600);
  EXPECT_EQ(refused(R"({"jsonrpc":"2.0","id":1,"method":5})"), -32600);
  EXPECT_EQ(refused(R"({"jsonrpc":"2.0","id":null,"method":"ping"})"), -32600);
  EXPECT_EQ(refused(R"({"jsonrpc":"2.0","id":1.5,"method":"ping"})"), -32600);
  EXPECT_EQ(refused(R"({"jsonrpc":"2.0","id":{},"method":"ping"})"), -32600);
  EXPECT_EQ(refused(R"({"jsonrpc":"2.0","id":1,"method":"ping","params":[1]})"), -32602);
  EXPECT_EQ(refused(R"({"jsonrpc":"2.0","id":")" + std::string(300, 'x') + R"(","method":"ping"})"),
            -32600);
  EXPECT_EQ(refused("\"" + std::string(kMaxMessage, 'x') + "\""), -32600);
}

TEST(Message, TheIdOfWhatIsWrongComesBack) {
  const Incoming bad = parse_incoming(R"({"jsonrpc":"2.0","id":9,"method":"x","params":3})");
  const json::object answer = make_failure(std::get<Malformed>(bad.messages.at(0)));
  EXPECT_EQ(
      json::serialize(answer),
      R"({"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"\"params\" must be an object"}})");
}

TEST(Message, Batches) {
  const Incoming batch = parse_incoming(
      R"([{"jsonrpc":"2.0","id":1,"method":"ping"},5,{"jsonrpc":"2.0","method":"n"}])");
  EXPECT_TRUE(batch.batch);
  ASSERT_EQ(batch.messages.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<Malformed>(batch.messages[1]));
  std::string many = "[";
  for (std::size_t i = 0; i <= kMaxBatch; ++i) many += i == 0 ? "{}" : ",{}";
  EXPECT_EQ(refused(many + "]"), -32600);
}

TEST(Message, Answers) {
  EXPECT_EQ(json::serialize(make_response("a", json::object{})),
            R"({"jsonrpc":"2.0","id":"a","result":{}})");
  EXPECT_EQ(
      json::serialize(make_failure(1, RpcCode::unavailable, "no", {{"error", "x"}})),
      R"({"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no","data":{"error":"x"}}})");
  EXPECT_NE(id_key(1), id_key("1"));
}

TEST(Version, Negotiation) {
  EXPECT_EQ(negotiate_version("2024-11-05"), "2024-11-05");
  EXPECT_EQ(negotiate_version("2025-06-18"), "2025-06-18");
  EXPECT_EQ(negotiate_version("1999-01-01"), protocol_versions()[0]);
  EXPECT_EQ(negotiate_version(""), protocol_versions()[0]);
  EXPECT_TRUE(allows_batches("2025-03-26"));
  EXPECT_FALSE(allows_batches("2025-06-18"));
  EXPECT_TRUE(is_protocol_version(kAssumedVersion));
}

TEST(Sse, RoundTripInAnyPieces) {
  const std::string stream = std::string(kSseComment) + sse_event("{\"a\":1}") +
                             "id: 5\r\nevent: message\r\ndata: x\r\ndata:y\r\n\r\n";
  for (std::size_t size = 1; size <= stream.size(); ++size) {
    SseReader reader(1000);
    std::vector<std::string> all;
    for (std::size_t at = 0; at < stream.size(); at += size) {
      auto some = reader.feed(std::string_view(stream).substr(at, size));
      ASSERT_TRUE(some.ok());
      all.insert(all.end(), some->begin(), some->end());
    }
    EXPECT_EQ(all, (std::vector<std::string>{"{\"a\":1}", "x\ny"})) << size;
  }
}

TEST(Sse, AnEventHasALimit) {
  SseReader reader(100);
  EXPECT_FALSE(reader.feed("data: " + std::string(200, 'x')).ok());
}

}  // namespace
}  // namespace atl::mcp
