// Requests that two parsers could read differently: refused, or carried as what they plainly are.
// What a service behind the proxy saw is what counts.
#include <gmock/gmock.h>

#include <mutex>

#include "proxy/testing.h"

namespace atl::proxy {
namespace {

using namespace std::string_literals;

using engine::testing::RawClient;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SmugglingTest : public GatewayTest {
 protected:
  SmugglingTest() {
    serve([this](net::Exchange& exchange) { return note(exchange); });
  }
  net::Task<void> note(net::Exchange& exchange) {
    auto reading = exchange.body.read_all(1 << 20);
    auto body = co_await std::move(reading);
    std::string line = exchange.request.method + " " + exchange.request.target + " " +
                       (body.ok() ? *body : "broken");
    {
      std::lock_guard lock(mutex);
      seen.push_back(line);
      headers = exchange.request.headers;
    }
    auto sending = exchange.response.send(200, {}, "ok");
    (void)co_await std::move(sending);
  }
  // Sends it all and reads until the proxy hangs up.
  std::string talk(const std::string& bytes) {
    RawClient client(port);
    client.send(bytes);
    return client.read_all();
  }
  std::vector<std::string> requests() {
    std::lock_guard lock(mutex);
    return seen;
  }
  std::string head(const SandboxId& id, const std::string& line = "POST /x HTTP/1.1") {
    return line + "\r\n" + raw_headers(id, 8000) + "Connection: close\r\n";
  }
  void expect_refused(const std::string& bytes) {
    const std::string answer = talk(bytes);
    EXPECT_THAT(answer, ::testing::MatchesRegex("HTTP/1.[01] 400 Bad Request\r\n(.|\r|\n)*"))
        << bytes;
    EXPECT_EQ(answer.find("Bad Request", answer.find("Bad Request") + 1), std::string::npos)
        << "one answer only: " << answer;
    EXPECT_THAT(requests(), ::testing::IsEmpty()) << bytes;
  }

  std::mutex mutex;
  std::vector<std::string> seen;
  net::Headers headers;
};

TEST_F(SmugglingTest, LengthAndChunks) {
  const auto id = create().record.id;
  const std::string smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
  expect_refused(head(id) + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled);
  expect_refused(head(id) + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + smuggled);
  expect_refused(head(id) + "Content-Length: 5\r\nTransfer-Encoding : chunked\r\n\r\n" + smuggled);
  expect_refused(head(id) + "Content-Length: 5\r\nTransfer-Encoding: chunked, identity\r\n\r\n" +
                 smuggled);
  expect_refused(head(id) +
                 "Content-Length: 5\r\nTransfer-Encoding:\x0b"
                 "chunked\r\n\r\n" +
                 smuggled);
  expect_refused(head(id, "POST /x HTTP/1.0") + "Transfer-Encoding: chunked\r\n\r\n" + smuggled);
}

TEST_F(SmugglingTest, SeveralLengths) {
  const auto id = create().record.id;
  expect_refused(head(id) + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!");
  expect_refused(head(id) + "Content-Length: 5, 6\r\n\r\nhello!");
  expect_refused(head(id) + "Content-Length: +5\r\n\r\nhello");
  expect_refused(head(id) + "Content-Length: 0x5\r\n\r\nhello");
  expect_refused(head(id) + "Content-Length: 99999999999999999999\r\n\r\nhello");
}

TEST_F(SmugglingTest, FoldedLines) {
  const auto id = create().record.id;
  // A header that goes on in the next line is one header for us and for the service: a length or
  // an encoding hidden in it has no effect of its own.
  const std::string answer =
      talk(head(id) +
           "X-Folded: a\r\n Content-Length: 50\r\n\tTransfer-Encoding: chunked\r\n"
           "Content-Length: 2\r\n\r\nhi");
  if (answer.starts_with("HTTP/1.1 200")) {
    EXPECT_THAT(requests(), ::testing::ElementsAre("POST /x hi"));
    EXPECT_FALSE(headers.has("Transfer-Encoding"));
    EXPECT_EQ(headers.get("Content-Length"), "2");
  } else {
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400"));
    EXPECT_THAT(requests(), ::testing::IsEmpty());
  }
  seen.clear();
  expect_refused(head(id) + "Content-Length: 5\r\n 6\r\n\r\nhello!");
  expect_refused("POST /x HTTP/1.1\r\n Host: localhost\r\n\r\n");
}

TEST_F(SmugglingTest, BareLineFeeds) {
  const auto id = create().record.id;
  expect_refused("GET /x HTTP/1.1\nHost: localhost\n\n");
  expect_refused(head(id) + "X: a\nContent-Length: 2\r\n\r\nhi");
  expect_refused(head(id) + "X: a\rContent-Length: 2\r\n\r\nhi");
  expect_refused(head(id) + "X: a\0b\r\nContent-Length: 2\r\n\r\nhi"s);
}

TEST_F(SmugglingTest, TargetsThatNameAnotherHost) {
  const auto id = create().record.id;
  expect_refused(head(id, "GET http://8000-" + id.str() + ".box.example/x HTTP/1.1") + "\r\n");
  expect_refused(head(id, "GET x HTTP/1.1") + "\r\n");
  expect_refused(head(id) + "Host: other\r\nContent-Length: 0\r\n\r\n");
  const std::string connect = talk(head(id, "CONNECT localhost:8000 HTTP/1.1") + "\r\n");
  EXPECT_THAT(connect, StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(requests(), ::testing::IsEmpty());
}

TEST_F(SmugglingTest, ChunksWithExtensions) {
  const auto id = create().record.id;
  const std::string answer = talk(
      head(id) + "Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n1 ; x=\"1\"\r\n!\r\n0\r\n\r\n");
  if (answer.starts_with("HTTP/1.1 200")) {
    EXPECT_THAT(requests(), ::testing::ElementsAre("POST /x hi!"));
  } else {
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400"));
  }
  // What is not a chunk never reaches the service as a whole request.
  for (const char* chunks :
       {"2\nhi\r\n0\r\n\r\n", "0x2\r\nhi\r\n0\r\n\r\n", "-1\r\nhi\r\n0\r\n\r\n",
        "2\r\nhiX\r\n0\r\n\r\n", "ffffffffffffffffff\r\nhi\r\n0\r\n\r\n",
        "2;a\nb\r\nhi\r\n0\r\n\r\n"}) {
    {
      std::lock_guard lock(mutex);
      seen.clear();
    }
    const std::string broken = talk(head(id) + "Transfer-Encoding: chunked\r\n\r\n" + chunks +
                                    "GET /smuggled HTTP/1.1\r\n" + raw_headers(id, 8000) + "\r\n");
    EXPECT_EQ(broken.find("HTTP/1.1 200", 5), std::string::npos) << chunks;
    for (const std::string& request : requests())
      EXPECT_THAT(request, ::testing::Not(HasSubstr("smuggled"))) << chunks;
  }
}

TEST_F(SmugglingTest, AnswersAreFramedAnew) {
  const auto id = create().record.id;
  // A service that hides a second answer behind its first: the client never takes it for the
  // answer to its next request.
  f.runtime.handler = [](net::Exchange& exchange) -> net::Task<void> {
    (void)exchange.take_over();
    auto writing = exchange.stream.write_all(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: "
        "6\r\n\r\nforged");
    (void)co_await std::move(writing);
  };
  RawClient client(port);
  const std::string request = "GET /x HTTP/1.1\r\n" + raw_headers(id) + "\r\n";
  client.send(request);
  EXPECT_THAT(client.read_until("ok"), HasSubstr("Content-Length: 2"));
  client.send(request);
  EXPECT_EQ(client.read_until("ok").find("forged"), std::string::npos);
}

}  // namespace
}  // namespace atl::proxy
