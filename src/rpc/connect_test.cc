// The router behind a real HTTP server, spoken to in bytes and with the client.
#include "rpc/connect.h"

#include <gtest/gtest.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <thread>

#include "agent/process.pb.h"
#include "net/http_server.h"
#include "rpc/client.h"
#include "rpc/envelope.h"

namespace atl::rpc {
namespace {

namespace asio = net::asio;
namespace pb = ::process;

net::Task<void> sleep_for(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  timer.expires_after(time);
  co_await timer.async_wait(asio::use_awaitable);
}

struct Seen {
  bool unwound = false;  // a streaming handler was left
  int started = 0;
};

struct Mark {
  Seen& seen;
  ~Mark() { seen.unwound = true; }
};

net::Task<Result<pb::ListResponse>> list(CallContext& call, const pb::ListRequest&) {
  pb::ListResponse out;
  out.add_processes()->set_pid(call.timeout ? std::uint32_t(call.timeout->count()) : 1);
  co_return out;
}

net::Task<Result<pb::UpdateResponse>> fail(CallContext&, const pb::UpdateRequest& in) {
  if (in.process().pid() == 3) throw std::runtime_error("a bug");
  co_return make_error(Errc::not_found, "process with pid 7 not found");
}

// Sends as many events as the tag says, then does what the command says.
net::Task<Result<void>> start(CallContext&, const pb::StartRequest& in, MessageSink& sink,
                              Seen& seen) {
  ++seen.started;
  Mark mark{seen};
  for (int i = 0; i < int(in.tag().size()); ++i) {
    pb::StartResponse event;
    event.mutable_event()->mutable_start()->set_pid(std::uint32_t(i));
    ATOLL_CO_TRY(co_await sink.send(event));
  }
  if (in.process().cmd() == "fail") co_return make_error(Errc::invalid_argument, "bad cwd");
  if (in.process().cmd() == "throw") throw std::runtime_error("a bug");
  if (in.process().cmd() == "hang") co_await sleep_for(std::chrono::seconds(60));
  if (in.process().cmd() ==
      "block") {  // keeps the thread, so that the deadline cannot cut in before the end
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  co_return Result<void>();
}

net::Task<Result<void>> count(CallContext&, MessageSource& source, pb::StreamInputResponse&,
                              int& total) {
  pb::StreamInputRequest in;
  for (;;) {
    ATOLL_CO_TRY_ASSIGN(const bool more, co_await source.next(in));
    if (!more) co_return Result<void>();
    ++total;
  }
}

class ConnectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    router_.unary<pb::ListRequest, pb::ListResponse>("/process.Process/List", list);
    router_.unary<pb::UpdateRequest, pb::UpdateResponse>("/process.Process/Update", fail);
    router_.server_stream<pb::StartRequest>(
        "/process.Process/Start",
        [this](CallContext& call, const pb::StartRequest& in, MessageSink& sink) {
          return start(call, in, sink, seen_);
        });
    router_.client_stream<pb::StreamInputRequest, pb::StreamInputResponse>(
        "/process.Process/StreamInput",
        [this](CallContext& call, MessageSource& source, pb::StreamInputResponse& out) {
          return count(call, source, out, total_);
        });
    server_ = std::make_unique<net::HttpServer>(
        io_, net::ServerOptions{}, [this](net::Exchange& exchange) { return serve(exchange); });
    auto port = server_->listen_tcp("127.0.0.1:0", "test");
    ASSERT_TRUE(port.ok()) << port.error().message;
    port_ = *port;
  }

  net::Task<void> serve(net::Exchange& exchange) {
    auto handled = router_.handle(exchange);
    if (!co_await std::move(handled)) (void)co_await exchange.response.send(418, {}, "not a call");
  }

  template <class T>
  T run(net::Task<T> task) {
    std::optional<T> out;
    asio::co_spawn(io_, std::move(task), [&](std::exception_ptr e, T value) {
      if (e) std::rethrow_exception(e);
      out.emplace(std::move(value));
      io_.stop();
    });
    io_.restart();
    io_.run_for(std::chrono::seconds(20));
    EXPECT_TRUE(out.has_value()) << "the test did not finish";
    return std::move(*out);
  }

  net::Task<net::HttpClient::Answer> post(std::string path, std::string type, std::string body,
                                          net::Headers extra = {}, std::string method = "POST") {
    auto stream = co_await net::connect_tcp("127.0.0.1", port_);
    net::HttpClient client(*std::move(stream));
    net::RequestHead head;
    head.method = method;
    head.target = path;
    head.headers = extra;
    if (!type.empty()) head.headers.add("Content-Type", type);
    auto answer = co_await client.request(head, body);
    EXPECT_TRUE(answer.ok());
    co_return answer.ok() ? *answer : net::HttpClient::Answer{};
  }

  asio::io_context io_;
  Limits limits_{1000, 500};
  Router router_{limits_};
  Seen seen_;
  int total_ = 0;
  std::unique_ptr<net::HttpServer> server_;
  std::uint16_t port_ = 0;
};

TEST_F(ConnectTest, UnaryJson) {
  auto answer = run(post("/process.Process/List", "application/json; charset=utf-8", "{}",
                         {{"Connect-Protocol-Version", "1"}}));
  EXPECT_EQ(answer.head.status, 200);
  EXPECT_EQ(answer.head.headers.get("Content-Type"), "application/json");
  EXPECT_EQ(answer.body, R"({"processes":[{"pid":1}]})");
}

TEST_F(ConnectTest, UnaryProto) {
  auto answer = run(post("/process.Process/List", "application/proto", ""));
  EXPECT_EQ(answer.head.status, 200);
  EXPECT_EQ(answer.head.headers.get("Content-Type"), "application/proto");
  pb::ListResponse out;
  ASSERT_TRUE(out.ParseFromString(answer.body));
  EXPECT_EQ(out.processes(0).pid(), 1u);
}

TEST_F(ConnectTest, StatusesBeforeTheCall) {
  EXPECT_EQ(run(post("/process.Process/List", "application/json", "", {}, "GET")).head.status, 405);
  EXPECT_EQ(run(post("/process.Process/List", "application/json", "", {}, "GET"))
                .head.headers.get("Allow"),
            "POST");
  const auto unsupported = run(post("/process.Process/List", "text/plain", "{}"));
  EXPECT_EQ(unsupported.head.status, 415);
  EXPECT_EQ(unsupported.head.headers.get("Accept-Post"), "application/json, application/proto");
  EXPECT_EQ(run(post("/process.Process/List", "", "{}")).head.status, 415);
  EXPECT_EQ(run(post("/process.Process/List", "application/connect+json", "{}")).head.status, 415);
  EXPECT_EQ(run(post("/process.Process/Start", "application/json", "{}")).head.status, 415);
  EXPECT_EQ(run(post("/process.Process/Nothing", "application/json", "{}")).head.status, 404);
  EXPECT_EQ(run(post("/process.Processes/List", "application/json", "{}")).head.status, 418);
  EXPECT_EQ(run(post("/files", "application/json", "{}")).head.status, 418);
}

TEST_F(ConnectTest, UnaryErrors) {
  const auto missing =
      run(post("/process.Process/Update", "application/json", R"({"process":{"pid":7}})"));
  EXPECT_EQ(missing.head.status, 404);
  EXPECT_EQ(missing.head.headers.get("Content-Type"), "application/json");
  EXPECT_EQ(missing.body, R"({"code":"not_found","message":"process with pid 7 not found"})");
  EXPECT_EQ(run(post("/process.Process/List", "application/json", "")).head.status, 400);
  EXPECT_EQ(run(post("/process.Process/List", "application/json", "{")).head.status, 400);
  EXPECT_EQ(run(post("/process.Process/List", "application/json", "{}",
                     {{"Connect-Protocol-Version", "2"}}))
                .head.status,
            400);
  EXPECT_EQ(
      run(post("/process.Process/List", "application/json", "{}", {{"Content-Encoding", "br"}}))
          .head.status,
      501);
  EXPECT_EQ(run(post("/process.Process/List", "application/json", "{}",
                     {{"Content-Encoding", "identity"}}))
                .head.status,
            200);
  const auto large =
      run(post("/process.Process/List", "application/json", "{" + std::string(2000, ' ') + "}"));
  EXPECT_EQ(large.head.status, 429);
  EXPECT_NE(large.body.find("resource_exhausted"), std::string::npos);
}

TEST_F(ConnectTest, TimeoutHeader) {
  const auto parse = [](std::string text) {
    return parse_timeout({{"Connect-Timeout-Ms", std::move(text)}});
  };
  EXPECT_EQ(**parse("1"), std::chrono::milliseconds(1));
  EXPECT_EQ(**parse("9999999999"), std::chrono::milliseconds(9999999999));
  EXPECT_FALSE(parse("0")->has_value());
  EXPECT_FALSE(parse_timeout({})->has_value());
  for (const char* bad : {"", "-1", "+1", "1.5", "12345678901", "abc", "1 ", "0x10"}) {
    ASSERT_FALSE(parse(bad).ok()) << bad;
    EXPECT_EQ(parse(bad).error().code, Errc::invalid_argument) << bad;
  }
  EXPECT_EQ(
      run(post("/process.Process/List", "application/json", "{}", {{"Connect-Timeout-Ms", "x"}}))
          .head.status,
      400);
  EXPECT_EQ(
      run(post("/process.Process/List", "application/json", "{}", {{"Connect-Timeout-Ms", "250"}}))
          .body,
      R"({"processes":[{"pid":250}]})");
}

TEST_F(ConnectTest, KeepaliveHeader) {
  const auto parse = [](std::string text) {
    return keepalive_interval({{"Keepalive-Ping-Interval", std::move(text)}});
  };
  EXPECT_EQ(parse("50"), std::chrono::seconds(50));
  for (const char* bad : {"", "0", "-5", "x", "5s"})
    EXPECT_EQ(parse(bad), std::chrono::seconds(90)) << bad;
  EXPECT_EQ(keepalive_interval({}), std::chrono::seconds(90));
}

TEST_F(ConnectTest, ServerStream) {
  const auto answer = run(post("/process.Process/Start", "application/connect+json",
                               make_envelope(0, R"({"tag":"xx"})")));
  EXPECT_EQ(answer.head.status, 200);
  EXPECT_EQ(answer.head.headers.get("Content-Type"), "application/connect+json");
  EXPECT_EQ(answer.body, make_envelope(0, R"({"event":{"start":{}}})") +
                             make_envelope(0, R"({"event":{"start":{"pid":1}}})") +
                             make_envelope(kFlagEndStream, "{}"));
}

TEST_F(ConnectTest, StreamErrorsAreEndOfStream) {
  const auto error_of = [this](std::string body, net::Headers extra = {}) {
    const auto answer = run(post("/process.Process/Start", "application/connect+json",
                                 std::move(body), std::move(extra)));
    EXPECT_EQ(answer.head.status, 200);
    EXPECT_EQ(answer.head.headers.get("Content-Type"), "application/connect+json");
    EnvelopeParser parser(1000);
    parser.feed(answer.body);
    auto envelope = parser.next();
    EXPECT_TRUE(envelope.ok() && envelope->has_value() && (*envelope)->flags == kFlagEndStream);
    return (*envelope)->payload;
  };
  EXPECT_EQ(error_of(make_envelope(0, R"({"process":{"cmd":"fail"}})")),
            R"({"error":{"code":"invalid_argument","message":"bad cwd"}})");
  EXPECT_NE(error_of(make_envelope(0, "{")).find("invalid_argument"), std::string::npos);
  EXPECT_NE(error_of("").find("unimplemented"), std::string::npos);
  EXPECT_NE(error_of(make_envelope(0, "{}") + make_envelope(0, "{}")).find("unimplemented"),
            std::string::npos);
  EXPECT_NE(error_of(make_envelope(0, "{}").substr(0, 6)).find("invalid_argument"),
            std::string::npos);
  EXPECT_NE(error_of(make_envelope(kFlagCompressed, "x")).find("internal"), std::string::npos);
  EXPECT_NE(error_of(make_envelope(0, std::string(600, ' '))).find("resource_exhausted"),
            std::string::npos);
  EXPECT_NE(
      error_of(make_envelope(0, "{}"), {{"Connect-Timeout-Ms", "x"}}).find("invalid_argument"),
      std::string::npos);
  EXPECT_NE(error_of(make_envelope(0, "{}"), {{"Connect-Content-Encoding", "gzip"}})
                .find("unimplemented"),
            std::string::npos);
  EXPECT_NE(error_of(make_envelope(0, R"({"process":{"cmd":"throw"}})")).find("internal"),
            std::string::npos);
  // An empty envelope is a message without fields.
  EXPECT_EQ(error_of(make_envelope(0, "")), "{}");
}

TEST_F(ConnectTest, DeadlineEndsAStream) {
  const std::string body = make_envelope(0, R"({"process":{"cmd":"hang"},"tag":"x"})");
  const auto answer = run(post("/process.Process/Start", "application/connect+json", body,
                               {{"Connect-Timeout-Ms", "50"}}));
  EXPECT_EQ(
      answer.body,
      make_envelope(0, R"({"event":{"start":{}}})") +
          make_envelope(
              kFlagEndStream,
              R"({"error":{"code":"deadline_exceeded","message":"context deadline exceeded"}})"));
  EXPECT_TRUE(seen_.unwound);
}

TEST_F(ConnectTest, AnEndAfterTheDeadlineIsNotClean) {
  const std::string body = make_envelope(0, R"({"process":{"cmd":"block"}})");
  const auto answer = run(post("/process.Process/Start", "application/connect+json", body,
                               {{"Connect-Timeout-Ms", "20"}}));
  EXPECT_NE(answer.body.find("deadline_exceeded"), std::string::npos);
}

net::Task<bool> hang_up(std::uint16_t port, Seen& seen) {
  auto stream = co_await net::connect_tcp("127.0.0.1", port);
  const std::string body = make_envelope(0, R"({"process":{"cmd":"hang"},"tag":"x"})");
  const std::string head =
      "POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Type: "
      "application/connect+json\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n";
  EXPECT_TRUE((co_await (*stream)->write_all(head + body)).ok());
  char byte[1];
  EXPECT_TRUE((co_await (*stream)->read_some(byte)).ok());  // it runs
  EXPECT_FALSE(seen.unwound);
  (*stream)->close();
  for (int i = 0; i < 500 && !seen.unwound; ++i) co_await sleep_for(std::chrono::milliseconds(10));
  co_return seen.unwound;
}

TEST_F(ConnectTest, AClientThatLeavesEndsItsCall) { EXPECT_TRUE(run(hang_up(port_, seen_))); }

TEST_F(ConnectTest, ClientStream) {
  std::string body;
  for (int i = 0; i < 5; ++i) body += make_envelope(0, R"({"keepalive":{}})");
  const auto answer = run(post("/process.Process/StreamInput", "application/connect+json", body));
  EXPECT_EQ(answer.body, make_envelope(0, "{}") + make_envelope(kFlagEndStream, "{}"));
  EXPECT_EQ(total_, 5);
}

net::Task<bool> drive_client(std::uint16_t port, Codec codec) {
  auto stream = co_await net::connect_tcp("127.0.0.1", port);
  net::HttpClient client(*std::move(stream));
  CallOptions options;
  options.codec = codec;
  for (int round = 0; round < 3; ++round) {  // on one connection
    pb::ListResponse listed;
    auto call = co_await unary(client, "/process.Process/List", pb::ListRequest(), listed, options);
    EXPECT_TRUE(call.ok());
    EXPECT_EQ(listed.processes_size(), 1);
    pb::UpdateRequest update;
    update.mutable_process()->set_pid(7);
    pb::UpdateResponse updated;
    auto failed = co_await unary(client, "/process.Process/Update", update, updated, options);
    EXPECT_EQ(failed.error().code, Errc::not_found);
    EXPECT_EQ(failed.error().message, "process with pid 7 not found");
    pb::StartRequest start;
    start.set_tag("abc");
    auto opened = co_await ServerStream::open(client, "/process.Process/Start", start, options);
    EXPECT_TRUE(opened.ok());
    if (!opened.ok()) co_return false;
    int events = 0;
    pb::StartResponse event;
    for (;;) {
      auto more = co_await opened->next(event);
      EXPECT_TRUE(more.ok()) << more.error().message;
      if (!more.ok() || !*more) break;
      EXPECT_EQ(event.event().start().pid(), std::uint32_t(events));
      ++events;
    }
    EXPECT_EQ(events, 3);
    EXPECT_TRUE(client.reusable());
    start.mutable_process()->set_cmd("fail");
    auto failing = co_await ServerStream::open(client, "/process.Process/Start", start, options);
    EXPECT_TRUE(failing.ok());
    if (!failing.ok()) co_return false;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(*co_await failing->next(event));
    auto end = co_await failing->next(event);
    EXPECT_EQ(end.error().code, Errc::invalid_argument);
    EXPECT_EQ(end.error().message, "bad cwd");
    EXPECT_TRUE(client.reusable());
  }
  co_return true;
}

TEST_F(ConnectTest, ClientProto) { EXPECT_TRUE(run(drive_client(port_, Codec::proto))); }
TEST_F(ConnectTest, ClientJson) { EXPECT_TRUE(run(drive_client(port_, Codec::json))); }

}  // namespace
}  // namespace atl::rpc
