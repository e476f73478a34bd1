// For tests of the interpreter: one in this process with a real port, the stand-in runner of
// tests/, and clients for it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/interpreter/service.h"
#include "agent/testing.h"
#include "base/json.h"

namespace atl::agent::interpreter {

namespace asio = net::asio;
using Answer = net::HttpClient::Answer;

inline const std::string kTests = ATOLL_INTERPRETER_TESTS;

inline net::Task<void> sleep_for(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

// One /execute as its client sees it.
class Stream {
 public:
  explicit Stream(net::HttpClient client) : client_(std::move(client)) {}

  int status = 0;
  std::string body;
  bool complete = false;  // the final chunk came

  // Reads until the body ends, or until it holds `text`.
  net::Task<bool> read_until(std::string text) {
    char buffer[64 << 10];
    while (text.empty() || body.find(text) == std::string::npos) {
      auto read = client_.body().read_some(buffer);
      const auto n = co_await std::move(read);
      if (!n.ok()) co_return false;
      if (*n == 0) {
        complete = true;
        co_return text.empty();
      }
      body.append(buffer, *n);
    }
    co_return true;
  }
  net::Task<bool> read_all() { return read_until(""); }
  void close() { client_.stream().close(); }
  net::HttpClient& client() { return client_; }

  std::vector<json::object> lines() const {
    std::vector<json::object> out;
    std::istringstream in(body);
    for (std::string line; std::getline(in, line);) out.push_back(parse_json(line)->as_object());
    return out;
  }
  // "number_of_executions 1", "stdout hello\n", "error Name", "end_of_execution"
  std::vector<std::string> told() const {
    std::vector<std::string> out;
    for (const json::object& line : lines()) {
      std::string text(line.at("type").as_string());
      if (text == "keepalive") continue;
      if (const auto* count = line.if_contains("execution_count"))
        text += " " + std::to_string(count->as_int64());
      if (const auto* value = line.if_contains("text"))
        text += " " + std::string(value->as_string());
      if (const auto* name = line.if_contains("name")) text += " " + std::string(name->as_string());
      out.push_back(text);
    }
    return out;
  }
  json::value result() const {
    for (const json::object& line : lines()) {
      if (line.at("type") == "result") return line.at("json");
    }
    return nullptr;
  }

 private:
  net::HttpClient client_;
};

class InterpreterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(reaper_.start().ok());
    LauncherOptions options;
    options.kernels = kTests + "/kernels";
    options.user = testing::current_user("/").name;
    options.path = "/usr/bin:/bin";
    options.root = scratch_.path();
    options.nursery = "atoll-nursery-test-" + std::to_string(::getpid());
    options.nursery_uid = ::geteuid();
    nursery_name_ = options.nursery;
    interpreter_ = std::make_unique<Interpreter>(
        io_, state_, reaper_, logs_, options,
        std::vector<std::string>{"python", "javascript", "bash", "r"});
    interpreter_->start();
    service_ = std::make_unique<Service>(io_, *interpreter_);
    const auto port = service_->listen(0);
    ASSERT_TRUE(port.ok());
    port_ = *port;
  }

  template <class T>
  T run(net::Task<T> task) {
    return testing::run_task(io_, std::move(task));
  }
  void run_void(net::Task<void> task) {
    const auto with_value = [](net::Task<void> inner) -> net::Task<bool> {
      co_await std::move(inner);
      co_return true;
    };
    (void)run(with_value(std::move(task)));
  }

  net::Task<net::HttpClient> connect() {
    auto stream = co_await net::connect_tcp("127.0.0.1", port_);
    ATOLL_CHECK(stream.ok());
    co_return net::HttpClient(*std::move(stream));
  }

  net::Task<Answer> send(std::string method, std::string target, std::string body,
                         net::Headers headers) {
    net::HttpClient client = co_await connect();
    net::RequestHead head;
    head.method = std::move(method);
    head.target = std::move(target);
    head.headers = std::move(headers);
    auto answer = co_await client.request(head, std::move(body));
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    co_return answer.ok() ? *answer : Answer{};
  }
  Answer request(std::string method, std::string target, std::string body = {},
                 net::Headers headers = {}) {
    return run(send(std::move(method), std::move(target), std::move(body), std::move(headers)));
  }

  // Sends the request and reads the head.
  net::Task<std::shared_ptr<Stream>> open(json::object body) {
    auto stream = std::make_shared<Stream>(co_await connect());
    net::RequestHead head;
    head.method = "POST";
    head.target = "/execute";
    auto written = co_await stream->client().write_request(head, json::serialize(body));
    EXPECT_TRUE(written.ok());
    auto answer = co_await stream->client().read_head();
    EXPECT_TRUE(answer.ok());
    if (answer.ok()) stream->status = answer->status;
    co_return stream;
  }
  net::Task<std::shared_ptr<Stream>> open_code(std::string code, std::string context = {}) {
    json::object body{{"code", code}};
    if (!context.empty()) body["context_id"] = context;
    return open(std::move(body));
  }
  net::Task<std::shared_ptr<Stream>> execute_task(json::object body) {
    auto stream = co_await open(std::move(body));
    EXPECT_TRUE(co_await stream->read_all());
    co_return stream;
  }
  std::shared_ptr<Stream> execute(json::object body) { return run(execute_task(std::move(body))); }
  std::vector<std::string> told(std::string code, std::string context = {}) {
    json::object body{{"code", code}};
    if (!context.empty()) body["context_id"] = context;
    return execute(std::move(body))->told();
  }
  std::string new_context(std::string body = "{}") {
    const Answer made = request("POST", "/contexts", std::move(body));
    EXPECT_EQ(made.head.status, 200) << made.body;
    return std::string(parse_json(made.body)->at("id").as_string());
  }
  // Waits until it holds; the test's time limit is the only one.
  net::Task<void> eventually(std::function<bool()> holds) {
    while (!holds()) co_await sleep_for(std::chrono::milliseconds(5));
  }

  using Lines = std::vector<std::string>;

  testing::TempDir scratch_;
  asio::io_context io_{1};
  AgentState state_{testing::current_user("/").name};
  LogRing logs_;
  Reaper reaper_{io_};
  std::unique_ptr<Interpreter> interpreter_;
  std::unique_ptr<Service> service_;
  std::string nursery_name_;
  std::uint16_t port_ = 0;
};

}  // namespace atl::agent::interpreter
