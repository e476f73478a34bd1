// The whole agent, by both of its listeners: who reaches what, and processes over the wire.
#include "agent/agent.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "agent/agent_test_support.h"
#include "agent/process.pb.h"
#include "base/encoding.h"
#include "base/json.h"
#include "net/http_server.h"
#include "rpc/client.h"

namespace atl::agent {
namespace {

namespace pb = ::process;

TEST_F(AgentTest, Health) {
  for (const Via via : {Via::tcp, Via::host}) {
    const Answer answer = request(via, "GET", "/health");
    EXPECT_EQ(answer.head.status, 204);
    EXPECT_EQ(answer.head.headers.get("Cache-Control"), "no-store");
  }
  EXPECT_EQ(request(Via::tcp, "POST", "/health").head.status, 405);
  const Answer missing = request(Via::tcp, "GET", "/nothing");
  EXPECT_EQ(missing.head.status, 404);
  EXPECT_EQ(missing.body, R"({"code":404,"message":"page not found"})");
}

TEST_F(AgentTest, ControlPlaneOnlyFromTheHost) {
  for (const char* path : {"/init", "/freeze", "/upgrade"}) {
    EXPECT_EQ(request(Via::tcp, "POST", path, {}, "{}").head.status, 404) << path;
  }
  EXPECT_EQ(request(Via::tcp, "CONNECT", "127.0.0.1:1").head.status, 405);
  EXPECT_FALSE(agent_->state().access_token());
  const Answer done = request(Via::host, "POST", "/init", {},
                              R"({"accessToken":"t","envVars":{"A":"b"},"sandboxId":"i1"})");
  EXPECT_EQ(done.head.status, 204);
  EXPECT_EQ(done.head.headers.get("X-Envd-Version"), "0.6.13");
  EXPECT_EQ(agent_->state().access_token(), "t");
  EXPECT_EQ(testing::read_text(scratch_ / "markers/.E2B_SANDBOX_ID"), "i1");
  EXPECT_EQ(request(Via::host, "POST", "/init", {}, "{nope").head.status, 400);
  EXPECT_EQ(request(Via::host, "POST", "/init", {}, R"({"envVars":5})").head.status, 400);
  EXPECT_EQ(request(Via::host, "POST", "/init", {}, std::string(5 << 20, ' ')).head.status, 413);
  EXPECT_EQ(request(Via::host, "GET", "/init", {{"X-Access-Token", "t"}}).head.status, 405);
  EXPECT_EQ(agent_->state().access_token(), "t");
}

TEST_F(AgentTest, TokenGuardsEverythingElse) {
  init(R"({"accessToken":"t0k"})");
  const Answer refused = request(Via::tcp, "GET", "/metrics");
  EXPECT_EQ(refused.head.status, 401);
  EXPECT_EQ(refused.head.headers.get("Content-Type"), "application/json; charset=utf-8");
  EXPECT_EQ(refused.head.headers.get("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(
      refused.body,
      R"({"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"})");
  // A plain HTTP error on streams too, and before routes are looked at.
  EXPECT_EQ(request(Via::tcp, "POST", "/process.Process/Start",
                    {{"Content-Type", "application/connect+json"}}, "x")
                .head.status,
            401);
  EXPECT_EQ(request(Via::tcp, "GET", "/nothing").head.status, 401);
  EXPECT_EQ(request(Via::tcp, "GET", "/health").head.status, 204);
  EXPECT_EQ(request(Via::tcp, "GET", "/nothing", {{"X-Access-Token", "t0k"}}).head.status, 404);
  const Answer metrics = request(Via::tcp, "GET", "/metrics", {{"X-Access-Token", "t0k"}});
  EXPECT_EQ(metrics.head.status, 200);
  EXPECT_TRUE(parse_json(metrics.body)->as_object().contains("cpu_count"));
  init("{}");  // an absent token clears it
  EXPECT_EQ(request(Via::tcp, "GET", "/metrics").head.status, 200);
}

TEST_F(AgentTest, Envs) {
  init(R"({"envVars":{"FOO":"bar","E2B_SANDBOX":"no"},"sandboxId":"i1","templateId":"base"})");
  const Answer answer = request(Via::tcp, "GET", "/envs");
  EXPECT_EQ(answer.head.headers.get("Content-Type"), "application/json");
  EXPECT_EQ(answer.body,
            R"({"E2B_SANDBOX":"true","E2B_SANDBOX_ID":"i1","E2B_TEMPLATE_ID":"base","FOO":"bar"})");
}

TEST_F(AgentTest, UnknownBasicUserOnAnyRoute) {
  const Headers nobody{{"Authorization", "Basic " + base64_encode("no-such-user:")}};
  for (const char* path : {"/health", "/metrics", "/files?path=x"}) {
    const Answer answer = request(Via::tcp, "GET", path, nobody);
    EXPECT_EQ(answer.head.status, 401) << path;
    EXPECT_EQ(answer.body,
              R"({"code":"unauthenticated","message":"invalid username: 'no-such-user'"})")
        << path;
  }
  Headers stream = nobody;
  stream.add("Content-Type", "application/connect+json");
  const Answer answer =
      request(Via::tcp, "POST", "/process.Process/Start", stream, rpc::make_envelope(0, "{}"));
  EXPECT_EQ(answer.head.status, 200);
  EXPECT_EQ(
      answer.body,
      rpc::make_envelope(
          rpc::kFlagEndStream,
          R"({"error":{"code":"unauthenticated","message":"invalid username: 'no-such-user'"}})"));
}

TEST_F(AgentTest, Cors) {
  init(R"({"accessToken":"t0k"})");
  const Answer preflight =
      request(Via::tcp, "OPTIONS", "/process.Process/Start",
              {{"Origin", "https://example.com"},
               {"Access-Control-Request-Method", "POST"},
               {"Access-Control-Request-Headers", "authorization,x-access-token"}});
  EXPECT_EQ(preflight.head.status, 204);
  EXPECT_EQ(preflight.head.headers.get("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(preflight.head.headers.get("Access-Control-Allow-Methods"),
            "HEAD, GET, POST, PUT, PATCH, DELETE");
  EXPECT_EQ(preflight.head.headers.get("Access-Control-Allow-Headers"),
            "authorization,x-access-token");
  EXPECT_EQ(preflight.head.headers.get("Access-Control-Max-Age"), "7200");
  // Errors must be readable by the page too.
  const Answer refused = request(Via::tcp, "GET", "/metrics", {{"Origin", "https://example.com"}});
  EXPECT_EQ(refused.head.status, 401);
  EXPECT_EQ(refused.head.headers.get("Access-Control-Allow-Origin"), "*");
  EXPECT_NE(
      refused.head.headers.get("Access-Control-Expose-Headers").find("X-Content-Type-Options"),
      std::string_view::npos);
  EXPECT_FALSE(request(Via::tcp, "GET", "/health").head.headers.has("Access-Control-Allow-Origin"));
}

struct Outcome {
  std::uint32_t pid = 0;
  std::string out;
  std::optional<pb::ProcessEvent::EndEvent> end;
  int keepalives = 0;
  Result<void> result;
};

net::Task<Outcome> drive(net::HttpClient client, std::string path, std::string request_json,
                         rpc::CallOptions options) {
  Outcome outcome;
  pb::StartRequest start;
  pb::ConnectRequest connect;
  google::protobuf::Message& in =
      path.ends_with("Start") ? static_cast<google::protobuf::Message&>(start) : connect;
  ATOLL_CHECK(rpc::decode(rpc::Codec::json, request_json, in).ok());
  auto stream = co_await rpc::ServerStream::open(client, path, in, options);
  if (!stream.ok()) {
    outcome.result = stream.error();
    co_return outcome;
  }
  pb::StartResponse event;
  for (;;) {
    auto more = co_await stream->next(event);
    if (!more.ok()) outcome.result = more.error();
    if (!more.ok() || !*more) break;
    if (event.event().has_start()) outcome.pid = event.event().start().pid();
    if (event.event().has_keepalive()) ++outcome.keepalives;
    outcome.out += event.event().data().stdout() + event.event().data().pty();
    if (event.event().has_end()) outcome.end = event.event().end();
  }
  co_return outcome;
}

class AgentProcessTest : public AgentTest {
 protected:
  Outcome start(std::string json, rpc::CallOptions options = {}) {
    return run(drive(run(connect(Via::tcp)), "/process.Process/Start", std::move(json),
                     std::move(options)));
  }
};

TEST_F(AgentProcessTest, StartInBothCodecs) {
  init(R"({"envVars":{"FOO":"bar","OVER":"a"}})");
  for (const rpc::Codec codec : {rpc::Codec::json, rpc::Codec::proto}) {
    rpc::CallOptions options;
    options.codec = codec;
    const Outcome outcome = start(
        R"({"process":{"cmd":"/bin/sh","args":["-c","echo $FOO $OVER $USER $PATH $E2B_SANDBOX; pwd"],"envs":{"OVER":"b"},"cwd":"/tmp"},"stdin":false})",
        options);
    EXPECT_TRUE(outcome.result.ok());
    EXPECT_GT(outcome.pid, 0u);
    EXPECT_EQ(outcome.out,
              "bar b " + testing::current_user("/").name + " /usr/bin:/bin true\n/tmp\n");
    ASSERT_TRUE(outcome.end);
    EXPECT_EQ(outcome.end->status(), "exit status 0");
    EXPECT_FALSE(outcome.end->has_error());
  }
}

TEST_F(AgentProcessTest, StartErrors) {
  EXPECT_EQ(start(R"({"process":{"cmd":"true","cwd":"/nope"}})").result.error().message,
            "cwd '/nope' does not exist");
  EXPECT_EQ(start(R"({"process":{"cmd":"true","cwd":"/nope"}})").result.error().code,
            Errc::invalid_argument);
  EXPECT_EQ(start(R"({"process":{"cmd":"true","cwd":"~other/x"}})").result.error().code,
            Errc::invalid_argument);
  init(R"({"defaultUser":"no-such-user"})");
  EXPECT_EQ(start(R"({"process":{"cmd":"true"}})").result.error().code, Errc::unauthenticated);
}

TEST_F(AgentProcessTest, TimeoutKills) {
  rpc::CallOptions options;
  options.timeout = std::chrono::milliseconds(100);
  const auto before = std::chrono::steady_clock::now();
  const Outcome outcome = start(R"({"process":{"cmd":"sleep","args":["60"]}})", options);
  EXPECT_EQ(outcome.result.error().code, Errc::deadline_exceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
  const auto gone = [](std::uint32_t pid) -> net::Task<bool> {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (int i = 0; i < 500 && ::kill(pid_t(pid), 0) == 0; ++i) {
      timer.expires_after(std::chrono::milliseconds(10));
      co_await timer.async_wait(asio::use_awaitable);
    }
    co_return ::kill(pid_t(pid), 0) != 0;
  };
  EXPECT_TRUE(run(gone(outcome.pid)));
}

TEST_F(AgentProcessTest, Keepalive) {
  rpc::CallOptions options;
  options.headers.add("Keepalive-Ping-Interval", "1");
  const Outcome outcome = start(R"({"process":{"cmd":"sleep","args":["1.5"]}})", options);
  EXPECT_EQ(outcome.keepalives, 1);
  EXPECT_TRUE(outcome.end);
}

// A background process, and all that can be done to it from other connections.
net::Task<bool> control(net::HttpClient follower, net::HttpClient client) {
  pb::StartRequest start;
  start.mutable_process()->set_cmd("cat");
  start.set_tag("meow");
  auto stream = co_await rpc::ServerStream::open(follower, "/process.Process/Start", start);
  pb::StartResponse event;
  EXPECT_TRUE(*co_await stream->next(event));
  const std::uint32_t pid = event.event().start().pid();

  pb::ListResponse listed;
  EXPECT_TRUE(
      (co_await rpc::unary(client, "/process.Process/List", pb::ListRequest(), listed)).ok());
  EXPECT_EQ(listed.processes_size(), 1);
  EXPECT_EQ(listed.processes(0).pid(), pid);
  EXPECT_EQ(listed.processes(0).tag(), "meow");
  EXPECT_EQ(listed.processes(0).config().cmd(), "cat");

  pb::SendInputRequest input;
  pb::SendInputResponse sent;
  input.mutable_process()->set_tag("meow");
  EXPECT_EQ((co_await rpc::unary(client, "/process.Process/SendInput", input, sent)).error().code,
            Errc::unimplemented);
  input.mutable_input()->set_pty("x");
  EXPECT_EQ((co_await rpc::unary(client, "/process.Process/SendInput", input, sent)).error().code,
            Errc::internal);
  input.mutable_input()->set_stdin("hello");
  EXPECT_TRUE((co_await rpc::unary(client, "/process.Process/SendInput", input, sent)).ok());
  EXPECT_TRUE(*co_await stream->next(event));
  EXPECT_EQ(event.event().data().stdout(), "hello");

  pb::UpdateRequest update;
  pb::UpdateResponse updated;
  update.mutable_process()->set_pid(pid);
  EXPECT_TRUE((co_await rpc::unary(client, "/process.Process/Update", update, updated)).ok());
  update.mutable_pty()->mutable_size()->set_cols(5);
  const auto resized = co_await rpc::unary(client, "/process.Process/Update", update, updated);
  EXPECT_EQ(resized.error().code, Errc::internal);
  EXPECT_EQ(resized.error().message, "error resizing tty: tty not assigned to process");

  pb::SendSignalRequest signal;
  pb::SendSignalResponse signalled;
  EXPECT_EQ(
      (co_await rpc::unary(client, "/process.Process/SendSignal", signal, signalled)).error().code,
      Errc::unimplemented);
  signal.mutable_process()->set_pid(pid);
  const auto bad = co_await rpc::unary(client, "/process.Process/SendSignal", signal, signalled);
  EXPECT_EQ(bad.error().code, Errc::unimplemented);
  EXPECT_EQ(bad.error().message, "invalid signal: SIGNAL_UNSPECIFIED");
  signal.set_signal(pb::SIGNAL_SIGKILL);
  EXPECT_TRUE((co_await rpc::unary(client, "/process.Process/SendSignal", signal, signalled)).ok());
  EXPECT_TRUE(*co_await stream->next(event));
  EXPECT_EQ(event.event().end().status(), "signal: killed");
  EXPECT_FALSE(*co_await stream->next(event));
  const auto late = co_await rpc::unary(client, "/process.Process/SendSignal", signal, signalled);
  EXPECT_EQ(late.error().code, Errc::not_found);
  EXPECT_EQ(late.error().message, "process with pid " + std::to_string(pid) + " not found");

  pb::ConnectRequest connect;
  connect.mutable_process()->set_pid(pid);
  auto again = co_await rpc::ServerStream::open(client, "/process.Process/Connect", connect);
  EXPECT_TRUE(*co_await again->next(event));
  EXPECT_EQ(event.event().start().pid(), pid);
  EXPECT_TRUE(*co_await again->next(event));
  EXPECT_EQ(event.event().end().status(), "signal: killed");
  EXPECT_FALSE(*co_await again->next(event));
  connect.mutable_process()->set_pid(999999);
  auto nothing = co_await rpc::ServerStream::open(client, "/process.Process/Connect", connect);
  EXPECT_EQ((co_await nothing->next(event)).error().code, Errc::not_found);
  co_return true;
}

TEST_F(AgentProcessTest, ControlFromOtherConnections) {
  auto first = run(connect(Via::tcp));
  EXPECT_TRUE(run(control(std::move(first), run(connect(Via::host)))));
}

// The Start stream breaks off; the process goes on and can be attached to again.
net::Task<bool> reattach(net::HttpClient first, net::HttpClient second, net::HttpClient third) {
  pb::StartRequest start;
  start.mutable_process()->set_cmd("cat");
  auto stream = co_await rpc::ServerStream::open(first, "/process.Process/Start", start);
  pb::StartResponse event;
  EXPECT_TRUE(*co_await stream->next(event));
  const std::uint32_t pid = event.event().start().pid();
  first.stream().close();
  pb::ConnectRequest connect;
  connect.mutable_process()->set_pid(pid);
  auto again = co_await rpc::ServerStream::open(second, "/process.Process/Connect", connect);
  EXPECT_TRUE(*co_await again->next(event));
  EXPECT_EQ(event.event().start().pid(), pid);
  pb::SendInputRequest input;
  pb::SendInputResponse sent;
  input.mutable_process()->set_pid(pid);
  input.mutable_input()->set_stdin("still here");
  EXPECT_TRUE((co_await rpc::unary(third, "/process.Process/SendInput", input, sent)).ok());
  EXPECT_TRUE(*co_await again->next(event));
  EXPECT_EQ(event.event().data().stdout(), "still here");
  pb::CloseStdinRequest close;
  pb::CloseStdinResponse closed;
  close.mutable_process()->set_pid(pid);
  EXPECT_TRUE((co_await rpc::unary(third, "/process.Process/CloseStdin", close, closed)).ok());
  EXPECT_TRUE(*co_await again->next(event));
  EXPECT_EQ(event.event().end().status(), "exit status 0");
  co_return true;
}

TEST_F(AgentProcessTest, AClientThatLeavesKeepsTheProcess) {
  auto first = run(connect(Via::tcp)), second = run(connect(Via::tcp));
  EXPECT_TRUE(run(reattach(std::move(first), std::move(second), run(connect(Via::tcp)))));
}

TEST_F(AgentProcessTest, StreamInput) {
  const Headers type{{"Content-Type", "application/connect+json"}};
  const std::string early = rpc::make_envelope(0, R"({"data":{"input":{"stdin":"eA=="}}})");
  const Answer refused = request(Via::tcp, "POST", "/process.Process/StreamInput", type, early);
  EXPECT_NE(refused.body.find("failed_precondition"), std::string::npos) << refused.body;
  const auto go = [](net::HttpClient follower, net::HttpClient client) -> net::Task<bool> {
    pb::StartRequest start;
    start.mutable_process()->set_cmd("cat");
    start.set_tag("t");
    auto stream = co_await rpc::ServerStream::open(follower, "/process.Process/Start", start);
    pb::StartResponse event;
    EXPECT_TRUE(*co_await stream->next(event));
    net::RequestHead head;
    head.method = "POST";
    head.target = "/process.Process/StreamInput";
    head.headers.add("Content-Type", "application/connect+json");
    std::string body = rpc::make_envelope(0, R"({"start":{"process":{"tag":"t"}}})");
    body += rpc::make_envelope(0, R"({"keepalive":{}})");
    for (int i = 0; i < 3; ++i)
      body += rpc::make_envelope(0, R"({"data":{"input":{"stdin":"eA=="}}})");
    auto answer = co_await client.request(head, body);
    EXPECT_EQ(answer->body,
              rpc::make_envelope(0, "{}") + rpc::make_envelope(rpc::kFlagEndStream, "{}"));
    std::string out;
    while (out.size() < 3) {
      auto more = co_await stream->next(event);
      if (!more.ok() || !*more) break;
      out += event.event().data().stdout();
    }
    EXPECT_EQ(out, "xxx");
    co_return true;
  };
  auto first = run(connect(Via::tcp));
  EXPECT_TRUE(run(go(std::move(first), run(connect(Via::tcp)))));
}

// ---- CONNECT ----

net::Task<std::string> tunnel(net::HttpClient client, std::uint16_t port) {
  net::Stream& stream = client.stream();
  const std::string request =
      "CONNECT 127.0.0.1:" + std::to_string(port) + " HTTP/1.1\r\nHost: x\r\n\r\n" +
      "GET /inside HTTP/1.1\r\nHost: y\r\nConnection: close\r\n\r\n";  // sent along
  EXPECT_TRUE((co_await stream.write_all(request)).ok());
  std::string out;
  char buffer[4096];
  for (;;) {
    auto n = co_await stream.read_some(buffer);
    if (!n.ok() || *n == 0) break;
    out.append(buffer, *n);
  }
  co_return out;
}

TEST_F(AgentTest, DialsServicesInside) {
  net::HttpServer inside(io_, {}, [](net::Exchange& exchange) -> net::Task<void> {
    (void)co_await exchange.response.send(200, {}, "served " + exchange.request.target);
  });
  const auto port = inside.listen_tcp("[::1]:0", "inside");  // only the second address answers
  ASSERT_TRUE(port.ok());
  const std::string got = run(tunnel(run(connect(Via::host)), *port));
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n")) << got;
  EXPECT_TRUE(got.ends_with("served /inside")) << got;
  const Answer refused = request(Via::host, "CONNECT", "127.0.0.1:1");
  EXPECT_EQ(refused.head.status, 502);
  EXPECT_EQ(refused.body, R"({"code":502,"message":"nothing listens on port 1"})");
  EXPECT_EQ(request(Via::host, "CONNECT", "127.0.0.1:none").head.status, 400);
}

// The connection comes as a descriptor beside the answer; what is asked over it needs no agent.
net::Task<std::string> take_descriptor(net::HttpClient client, std::uint16_t port) {
  net::Stream& agent = client.stream();
  const std::string request =
      "CONNECT " + std::to_string(port) + " HTTP/1.1\r\nHost: x\r\nAtoll-Descriptor: 1\r\n\r\n";
  EXPECT_TRUE((co_await agent.write_all(request)).ok());
  char text[256];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  ssize_t n = -1;
  int fd = -1;
  for (int i = 0; i < 1000 && n < 0; ++i) {
    iovec bytes{text, sizeof text};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    n = ::recvmsg(agent.native_handle(), &message, MSG_DONTWAIT);
    if (cmsghdr* header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr)
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    if (n < 0) {
      net::asio::steady_timer pause(agent.executor(), std::chrono::milliseconds(5));
      co_await pause.async_wait(net::asio::use_awaitable);
    }
  }
  EXPECT_EQ(std::string_view(text, std::size_t(std::max<ssize_t>(n, 0))),
            "HTTP/1.1 200 OK\r\n\r\n");
  if (fd < 0) co_return "no descriptor";
  net::Socket socket(agent.executor(), net::asio::generic::stream_protocol(AF_INET, 0), fd);
  net::HttpClient inside(net::make_stream(std::move(socket)));
  auto answer = co_await inside.request({.method = "GET", .target = "/direct"}, "");
  co_return answer.ok() ? answer->body : answer.error().message;
}

TEST_F(AgentTest, HandsConnectionsOverAsDescriptors) {
  net::HttpServer inside(io_, {}, [](net::Exchange& exchange) -> net::Task<void> {
    (void)co_await exchange.response.send(200, {}, "served " + exchange.request.target);
  });
  const auto port = inside.listen_tcp("127.0.0.1:0", "inside");
  ASSERT_TRUE(port.ok());
  EXPECT_EQ(run(take_descriptor(run(connect(Via::host)), *port)), "served /direct");
}

}  // namespace
}  // namespace atl::agent
