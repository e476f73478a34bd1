// Handles, threads and callbacks of the library, against a played server in a thread of its own.
#include <atoll/atoll.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <mutex>
#include <thread>

#include "agent/process.pb.h"
#include "net/http_server.h"
#include "rpc/connect.h"

namespace atl::sdk {
namespace {

namespace asio = net::asio;
namespace pb = ::process;

constexpr const char* kSandbox =
    R"({"sandboxID":"iabc","templateID":"t","envdAccessToken":"tok","domain":null,"state":"running"})";

net::Task<void> say(net::Exchange& exchange, int status, std::string text) {
  auto sending = exchange.response.send(status, {}, std::move(text));
  (void)co_await std::move(sending);
}

net::Task<void> execute(net::Exchange& exchange, std::string body) {
  (void)co_await exchange.response.start(200, {}, std::nullopt);
  for (int i = 0; i < 3; ++i) {
    (void)co_await exchange.response.write("{\"type\":\"stdout\",\"text\":\"" + std::to_string(i) +
                                           "\"}\n");
  }
  if (body.find("hang") != std::string::npos) {
    auto waiting = exchange.stream.wait_peer_closed();
    co_await std::move(waiting);
    co_return;
  }
  (void)co_await exchange.response.write(
      "{\"type\":\"result\",\"text\":\"2\",\"json\":{\"a\":1},\"is_main_result\":true}\n"
      "{\"type\":\"end_of_execution\"}\n");
  (void)co_await exchange.response.finish();
}

net::Task<atl::Result<void>> start(rpc::CallContext& call, const pb::StartRequest& in,
                                   rpc::MessageSink& sink) {
  pb::StartResponse event;
  event.mutable_event()->mutable_start()->set_pid(9);
  ATOLL_CO_TRY(co_await sink.send(event));
  for (const char* text : {"a", "b", "c"}) {
    pb::StartResponse data;
    data.mutable_event()->mutable_data()->set_stdout(text);
    ATOLL_CO_TRY(co_await sink.send(data));
  }
  const std::string& line = in.process().args(in.process().args_size() - 1);
  if (line == "hang") {
    auto waiting = call.exchange.stream.wait_peer_closed();
    co_await std::move(waiting);
  }
  pb::StartResponse end;
  end.mutable_event()->mutable_end()->set_exited(true);
  end.mutable_event()->mutable_end()->set_exit_code(4);
  ATOLL_CO_TRY(co_await sink.send(end));
  co_return atl::Result<void>();
}

// What the played agent saw of processes.
struct Seen {
  std::mutex mutex;
  std::vector<std::size_t> pieces;  // of input; guarded by it
  std::atomic<bool> refuses_input = false;
  std::atomic<bool> killed = false;
};

net::Task<atl::Result<pb::SendInputResponse>> take_input(const pb::SendInputRequest& in,
                                                         Seen& seen) {
  if (seen.refuses_input) co_return make_error(Errc::resource_exhausted, "no more of that");
  {
    std::lock_guard lock(seen.mutex);
    seen.pieces.push_back(in.input().stdin().size());
  }
  co_return pb::SendInputResponse();
}
net::Task<atl::Result<pb::CloseStdinResponse>> take_close() { co_return pb::CloseStdinResponse(); }
net::Task<atl::Result<pb::SendSignalResponse>> take_signal(Seen& seen) {
  seen.killed = true;
  co_return pb::SendSignalResponse();
}

net::Task<void> serve(rpc::Router& router, net::Exchange& exchange) {
  const std::string path(exchange.request.path());
  if (path.starts_with("/process.")) {
    co_await router.handle(exchange);
    co_return;
  }
  auto reading = exchange.body.read_all(1 << 20);
  auto body = co_await std::move(reading);
  if (!body.ok()) co_return;
  if (path == "/execute") co_return co_await execute(exchange, *body);
  if (path == "/files" && exchange.request.method == "GET")
    co_return co_await say(exchange, 200, std::string(600'000, 'f'));
  if (path == "/files") co_return co_await say(exchange, 200, R"([{"path":"/f"}])");
  if (exchange.request.headers.get("X-API-Key") != "good")
    co_return co_await say(exchange, 401, R"({"code":401,"message":"no such key"})");
  if (exchange.request.method == "DELETE") co_return co_await say(exchange, 204, "");
  co_await say(exchange, 201, kSandbox);
}

class Sdk : public ::testing::Test {
 protected:
  Sdk() {
    router_.server_stream<pb::StartRequest>("/process.Process/Start", start);
    router_.unary<pb::SendInputRequest, pb::SendInputResponse>(
        "/process.Process/SendInput", [this](rpc::CallContext&, const pb::SendInputRequest& in) {
          return take_input(in, seen_);
        });
    router_.unary<pb::CloseStdinRequest, pb::CloseStdinResponse>(
        "/process.Process/CloseStdin",
        [](rpc::CallContext&, const pb::CloseStdinRequest&) { return take_close(); });
    router_.unary<pb::SendSignalRequest, pb::SendSignalResponse>(
        "/process.Process/SendSignal",
        [this](rpc::CallContext&, const pb::SendSignalRequest&) { return take_signal(seen_); });
    auto port = server_.listen_tcp("127.0.0.1:0", "test");
    ATOLL_CHECK(port.ok());
    url_ = "http://127.0.0.1:" + std::to_string(*port);
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Sdk() override {
    io_.stop();
    thread_.join();
  }
  Sandbox sandbox() {
    auto client = Client::connect(url_, "good");
    ATOLL_CHECK(client.ok());
    auto made = Sandbox::create(*client);
    ATOLL_CHECK(made.ok());
    return *made;
  }

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  Seen seen_;
  rpc::Router router_;
  net::HttpServer server_{io_, {}, [this](net::Exchange& x) { return serve(router_, x); }};
  std::string url_;
  std::thread thread_;
};

TEST_F(Sdk, CallbacksOfABlockingCallRunInTheCallersThread) {
  Sandbox box = sandbox();
  std::string heard;
  CodeOptions options;
  const auto self = std::this_thread::get_id();
  options.events.on_stdout = [&](std::string_view text) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    heard += text;
    // A call inside a callback: nothing may wait for itself.
    if (heard.size() == 1) EXPECT_EQ(box.commands().run("x")->exit_code, 4);
  };
  auto done = box.run_code("1+1", options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(heard, "012");
  EXPECT_EQ(done->text(), "2");
  EXPECT_EQ(done->results.at(0).format("json"), R"({"a":1})");
  EXPECT_EQ(done->results.at(0).format("png"), "");
  EXPECT_EQ(done->out.size(), 3u);
}

TEST_F(Sdk, CallbacksOfAnAsyncCallHaveAThreadOfTheirOwn) {
  Sandbox box = sandbox();
  std::string heard;
  CommandOptions options;
  const auto self = std::this_thread::get_id();
  options.events.on_stdout = [&](std::string_view text) {
    EXPECT_NE(std::this_thread::get_id(), self);
    EXPECT_TRUE(box.commands().run("nested").ok());
    heard += text;
  };
  auto first = box.commands().run_async("x", options);
  auto second = box.run_code_async("1");
  EXPECT_EQ(first.get()->exit_code, 4);
  EXPECT_EQ(heard, "abc");
  EXPECT_TRUE(second.get().ok());
}

TEST_F(Sdk, ACallbackThatThrowsFailsItsCall) {
  Sandbox box = sandbox();
  CodeOptions code;
  code.events.on_stdout = [](std::string_view) { throw 1; };
  EXPECT_EQ(box.run_code("1", code).error().code, Code::canceled);
  CommandOptions command;
  command.events.on_stdout = [](std::string_view) { throw std::runtime_error("no"); };
  EXPECT_EQ(box.commands().run("x", command).error().code, Code::canceled);
  EXPECT_EQ(box.files().read_to("f", [](std::string_view) -> bool { throw 2; }).error().code,
            Code::canceled);
  EXPECT_TRUE(box.run_code("1").ok());
}

TEST_F(Sdk, ATimeoutEndsTheRun) {
  Sandbox box = sandbox();
  CodeOptions options;
  options.timeout = std::chrono::milliseconds(40);
  EXPECT_EQ(box.run_code("hang", options).error().code, Code::deadline_exceeded);
}

TEST_F(Sdk, ProcessesInTheBackground) {
  Sandbox box = sandbox();
  auto process = box.commands().start("x");
  ASSERT_TRUE(process.ok()) << process.error().message;
  EXPECT_EQ(process->pid(), 9u);
  auto later = process->wait_async();
  EXPECT_EQ(process->wait()->out, "abc");
  EXPECT_EQ(later.get()->exit_code, 4);
  EXPECT_EQ(process->wait()->exit_code, 4);  // as often as one likes
  auto hanging = box.commands().start("hang");
  ASSERT_TRUE(hanging.ok());
  hanging->disconnect();
  EXPECT_EQ(hanging->wait().error().code, Code::canceled);
}

TEST_F(Sdk, ProcessesStartWithoutWaiting) {
  Sandbox box = sandbox();
  auto starting = box.commands().start_async("x");
  auto opening = box.pty().create_async();
  auto process = starting.get();
  ASSERT_TRUE(process.ok()) << process.error().message;
  EXPECT_EQ(process->wait()->exit_code, 4);
  auto terminal = opening.get();
  ASSERT_TRUE(terminal.ok()) << terminal.error().message;
  EXPECT_EQ(terminal->pid(), 9u);
}

TEST_F(Sdk, InputOfProcessesInTheBackground) {
  Sandbox box = sandbox();
  CommandOptions options = Commands::background();
  options.input = std::string(600'000, 'x');
  ASSERT_TRUE(box.commands().start("hang", options).ok());
  {
    std::lock_guard lock(seen_.mutex);
    EXPECT_EQ(seen_.pieces, (std::vector<std::size_t>{262'144, 262'144, 75'712}));
  }
  EXPECT_FALSE(seen_.killed);
  seen_.refuses_input = true;
  EXPECT_EQ(box.commands().start("hang", options).error().code, Code::resource_exhausted);
  EXPECT_TRUE(seen_.killed);
}

TEST_F(Sdk, NoCallbackRunsAfterDisconnect) {
  Sandbox box = sandbox();
  std::promise<void> begun;
  std::atomic<int> heard = 0;
  std::atomic<int> ended = 0;
  CommandOptions options = Commands::background();
  options.events.on_stdout = [&](std::string_view) {
    if (++heard == 1) begun.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++ended;
  };
  auto process = box.commands().start("hang", options);
  ASSERT_TRUE(process.ok()) << process.error().message;
  begun.get_future().wait();
  process->disconnect();
  const int before = heard;
  EXPECT_EQ(ended, before);
  EXPECT_EQ(process->wait().error().code, Code::canceled);
  EXPECT_EQ(heard, before);
}

TEST_F(Sdk, ACallbackMayDisconnect) {
  Sandbox box = sandbox();
  std::promise<Process> started;
  auto handle = started.get_future().share();
  std::atomic<int> heard = 0;
  CommandOptions options = Commands::background();
  options.events.on_stdout = [&](std::string_view) {
    ++heard;
    Process(handle.get()).disconnect();
  };
  auto process = box.commands().start("hang", options);
  ASSERT_TRUE(process.ok()) << process.error().message;
  started.set_value(*process);
  EXPECT_EQ(process->wait().error().code, Code::canceled);
  EXPECT_EQ(heard, 1);
}

TEST_F(Sdk, FilesPieceByPiece) {
  Sandbox box = sandbox();
  std::uint64_t seen = 0;
  auto total = box.files().read_to("f", [&](std::string_view piece) {
    seen += piece.size();
    return true;
  });
  EXPECT_EQ(*total, 600'000u);
  EXPECT_EQ(seen, 600'000u);
  EXPECT_EQ(box.files().read_to("f", [](std::string_view) { return false; }).error().code,
            Code::canceled);
  int left = 3;
  auto sent = box.files().write_from("f", [&](std::span<char> into) -> std::optional<std::size_t> {
    return left-- > 0 ? into.size() : 0;
  });
  ASSERT_TRUE(sent.ok()) << sent.error().message;
  EXPECT_GT(*sent, 0u);
  EXPECT_EQ(box.files().upload("/no/such/file", "f").error().code, Code::not_found);
}

TEST_F(Sdk, WhatIsUnderWayEndsWithTheLastHandle) {
  std::future<Result<Execution>> run;
  std::future<Result<CommandResult>> wait;
  {
    Sandbox box = sandbox();
    run = box.run_code_async("hang");
    auto process = box.commands().start("hang");
    ASSERT_TRUE(process.ok());
    wait = process->wait_async();
  }
  EXPECT_EQ(run.get().error().code, Code::canceled);
  EXPECT_EQ(wait.get().error().code, Code::canceled);
}

TEST_F(Sdk, AHandleMayGoAwayInsideACallback) {
  auto box = std::make_unique<Sandbox>(sandbox());
  CommandOptions options;
  options.events.on_stdout = [&](std::string_view) { box.reset(); };
  auto future = box->commands().run_async("x", std::move(options));
  // The callback's own drop ends everything, or the call ended before that was seen.
  auto result = future.get();
  EXPECT_TRUE(result.ok() || result.error().code == Code::canceled);
}

TEST_F(Sdk, ErrorsAreValues) {
  auto wrong = Client::connect(url_, "bad");
  ASSERT_TRUE(wrong.ok());
  auto none = Sandbox::create(*wrong);
  EXPECT_EQ(none.error().code, Code::unauthenticated);
  EXPECT_STREQ(name_of(none.error().code), "unauthenticated");
  EXPECT_EQ(Client::connect("nonsense", "k").error().code, Code::invalid_argument);
  auto nobody = Client::connect("http://127.0.0.1:1", "k");
  EXPECT_EQ(Sandbox::create(*nobody).error().code, Code::unavailable);
  auto executed = execute_structured(*nobody, "1");
  EXPECT_EQ(executed.error_name, "SandboxError");
  EXPECT_NE(executed.to_json().find("\"error_name\":\"SandboxError\""), std::string::npos);
  EXPECT_EQ(execute_structured(Client::connect("nonsense", "k"), "1").error_name, "SandboxError");
}

TEST_F(Sdk, ExecutesOnce) {
  auto client = Client::connect(url_, "good");
  auto done = atl::sdk::execute(*client, std::string("1+1"));
  EXPECT_TRUE(done.success);
  EXPECT_EQ(done.output, "2");
  ExecuteOptions options;
  options.timeout = std::chrono::milliseconds(2000);
  auto hung = execute_structured(*client, "hang", options);
  EXPECT_EQ(hung.error_name, "TimeoutError");
  EXPECT_EQ(hung.out.size(), 3u);
}

TEST(Embedded, SaysWhatItNeeds) {
  EmbeddedOptions options;
  options.program = "/no/such/program";
  const auto code = Client::embedded(options).error().code;
  EXPECT_TRUE(code == Code::not_found || code == Code::permission_denied);
}

}  // namespace
}  // namespace atl::sdk
