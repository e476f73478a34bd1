// The interpreter's HTTP API: contexts, answers to bad requests, what goes through to runners.
#include <gmock/gmock.h>

#include "agent/interpreter/interpreter_test_support.h"

namespace atl::agent::interpreter {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(InterpreterTest, HealthAndUnknownRoutes) {
  const Answer health = request("GET", "/health?source=ci");
  EXPECT_EQ(health.head.status, 200);
  EXPECT_EQ(health.body, "\"OK\"");
  EXPECT_EQ(health.head.headers.get("Content-Type"), "application/json");
  EXPECT_FALSE(health.head.headers.has("Access-Control-Allow-Origin"));
  for (const char* path : {"/", "/contexts/", "/contexts/a/b", "/contexts//restart", "/warm"}) {
    const Answer missing = request("POST", path);
    EXPECT_EQ(missing.head.status, 404) << path;
    EXPECT_EQ(missing.body, R"({"detail":"Not Found"})");
  }
  const Answer method = request("PUT", "/execute");
  EXPECT_EQ(method.head.status, 405);
  EXPECT_EQ(method.body, R"({"detail":"Method Not Allowed"})");
  EXPECT_EQ(method.head.headers.get("Allow"), "POST");
}

TEST_F(InterpreterTest, Cors) {
  EXPECT_EQ(request("GET", "/nothing", "", {{"Origin", "https://a.b"}})
                .head.headers.get("Access-Control-Allow-Origin"),
            "*");
  const Answer preflight = request("OPTIONS", "/execute", "",
                                   {{"Origin", "https://a.b"},
                                    {"Access-Control-Request-Method", "POST"},
                                    {"Access-Control-Request-Headers", "x-access-token"}});
  EXPECT_EQ(preflight.head.status, 200);
  EXPECT_EQ(preflight.body, "OK");
  EXPECT_EQ(preflight.head.headers.get("Access-Control-Allow-Methods"),
            "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
  EXPECT_EQ(preflight.head.headers.get("Access-Control-Max-Age"), "600");
  EXPECT_EQ(preflight.head.headers.get("Access-Control-Allow-Headers"), "x-access-token");
  EXPECT_EQ(preflight.head.headers.get("Access-Control-Allow-Origin"), "*");
}

TEST_F(InterpreterTest, ContextsAreListedByAge) {
  const auto languages = [&] {
    Lines out;
    const auto list = parse_json(request("GET", "/contexts").body);
    for (const auto& entry : list->as_array()) {
      out.push_back(std::string(entry.at("language").as_string()) + " " +
                    std::string(entry.at("cwd").as_string()));
    }
    return out;
  };
  EXPECT_THAT(languages(), ElementsAre("python /home/user", "javascript /home/user"));
  const Answer made =
      request("POST", "/contexts", R"({"cwd":"/root","language":" Python3 ","other":1})");
  EXPECT_EQ(made.head.status, 200);
  EXPECT_EQ(parse_json(made.body)->at("language"), "python");
  EXPECT_EQ(parse_json(made.body)->at("cwd"), "/root");
  (void)execute({{"code", ""}, {"language", "bash"}});
  EXPECT_THAT(languages(), ElementsAre("python /home/user", "javascript /home/user", "python /root",
                                       "bash /home/user"));
  const std::string id(parse_json(made.body)->at("id").as_string());
  const Answer gone = request("DELETE", "/contexts/" + id);
  EXPECT_EQ(gone.head.status, 200);
  EXPECT_EQ(gone.body, "null");
  EXPECT_EQ(request("DELETE", "/contexts/" + id).body, "Context " + id + " not found");
  EXPECT_EQ(languages().size(), 3U);
}

TEST_F(InterpreterTest, RemovedDefaultComesBack) {
  EXPECT_THAT(told("print a"),
              ElementsAre("number_of_executions 1", "stdout a\n", "end_of_execution"));
  const std::string id = interpreter_->contexts().front()->spec().id;
  EXPECT_EQ(request("DELETE", "/contexts/" + id).head.status, 200);
  EXPECT_EQ(interpreter_->contexts().size(), 1U);
  EXPECT_THAT(told(""), ElementsAre("number_of_executions 1", "end_of_execution"));
  EXPECT_NE(interpreter_->contexts().back()->spec().id, id);
}

TEST_F(InterpreterTest, BadRequests) {
  const auto body_of = [&](std::string body) {
    const Answer answer = request("POST", "/execute", std::move(body));
    return std::to_string(answer.head.status) + " " + answer.body;
  };
  EXPECT_EQ(
      body_of("{}"),
      R"(422 {"detail":[{"type":"missing","loc":["body","code"],"msg":"Field required","input":{}}]})");
  EXPECT_EQ(
      body_of(R"({"code":{"context":1}})"),
      R"(422 {"detail":[{"type":"string_type","loc":["body","code"],"msg":"Input should be a valid string","input":{"context":1}}]})");
  EXPECT_EQ(
      body_of(R"({"code":"","env_vars":{"A":1}})"),
      R"(422 {"detail":[{"type":"string_type","loc":["body","env_vars","A"],"msg":"Input should be a valid string","input":1}]})");
  EXPECT_THAT(body_of(R"({"code":"","env_vars":{"A=":"1"}})"), HasSubstr("422 "));
  EXPECT_THAT(body_of(R"({"code":"","env_vars":[]})"), HasSubstr("dict_type"));
  EXPECT_THAT(body_of(R"({"code":"","language":5})"), HasSubstr("string_type"));
  EXPECT_THAT(body_of(R"({"code":"","arguments":[1]})"), HasSubstr("dict_type"));
  EXPECT_THAT(body_of(R"({"code":"\ud800"})"), HasSubstr("json_invalid"));
  EXPECT_THAT(body_of("{\"code\":\"\xff\"}"), HasSubstr("json_invalid"));
  EXPECT_THAT(body_of("[1]"), HasSubstr("model_attributes_type"));
  EXPECT_THAT(body_of(""), HasSubstr("json_invalid"));
  EXPECT_EQ(body_of(R"({"code":"","language":"js","context_id":"x"})"),
            "400 Only one of context_id or language can be provided");
  EXPECT_EQ(body_of(R"({"code":"","context_id":"x"})"), "404 Context x not found");
  EXPECT_EQ(body_of(R"({"code":"","language":"bash","arguments":{}})"),
            "400 arguments are not supported for bash");
  EXPECT_EQ(request("POST", "/contexts/x/restart").body, "Context x not found");
  const auto announce = [&]() -> net::Task<int> {
    net::HttpClient client = co_await connect();
    net::RequestHead head;
    head.method = "POST";
    head.target = "/execute";
    auto written = co_await client.write_head(head, kMaxBody + 1);
    EXPECT_TRUE(written.ok());
    auto answer = co_await client.read_head();
    co_return answer.ok() ? answer->status : 0;
  };
  EXPECT_EQ(run(announce()), 413);
}

TEST_F(InterpreterTest, LanguagesThatAreNotThere) {
  for (const char* name : {"go", "java", "r", "typescript"}) {
    const Answer answer = request("POST", "/execute",
                                  json::serialize(json::object{{"code", ""}, {"language", name}}));
    EXPECT_EQ(answer.head.status, 500) << name;
    EXPECT_THAT(answer.body, HasSubstr("Failed to create context: ")) << name;
    EXPECT_EQ(answer.head.headers.get("Content-Type"), "text/plain; charset=utf-8");
  }
  EXPECT_EQ(request("POST", "/contexts", R"({"language":"r"})").head.status, 500);
  EXPECT_EQ(interpreter_->contexts().size(), 2U);
}

TEST_F(InterpreterTest, KernelThatCannotStart) {
  const Answer answer = request("POST", "/contexts", R"({"env_vars":{"STAND_IN_FAILS":"1"}})");
  EXPECT_EQ(answer.head.status, 200);  // the variables come with `start`, after its beginning
  InitRequest init;
  init.env_vars = std::map<std::string, std::string>{{"STAND_IN_FAILS", "1"}};
  state_.apply(std::move(init));
  const Answer failed = request("POST", "/contexts");
  EXPECT_EQ(failed.head.status, 500);
  EXPECT_THAT(failed.body, HasSubstr("Failed to create context: the kernel ended while it started: "
                                     "cannot start: STAND_IN_FAILS is set"));
}

TEST_F(InterpreterTest, LinesGoThroughAsTheyAre) {
  const std::string line =
      R"({"type":"result","chart":{"x":[1.0,1e3,"\u2028"]},"extra":{},"is_main_result":true})";
  const auto stream = execute({{"code", "raw " + line}});
  EXPECT_EQ(stream->status, 200);
  EXPECT_TRUE(stream->complete);
  EXPECT_EQ(stream->body, "{\"type\": \"number_of_executions\", \"execution_count\": 1}\n" + line +
                              "\n{\"type\": \"end_of_execution\"}\n");
}

TEST_F(InterpreterTest, RequestsGoThroughAsTheyAre) {
  const auto send = [&](std::string body) { return request("POST", "/execute", std::move(body)); };
  const Answer answer = send(
      "{\"code\":\"show message\",\n\"env_vars\":{\"A\":\"\\u00e9\",\n\"B\":\"\xc3\xa9\"},"
      "\"arguments\":{\"n\":123456789012345678901234567890,\r\n\"f\":1.0}}");
  EXPECT_THAT(answer.body, HasSubstr(R"("env": {"A": "\u00e9", "B": "\u00e9"})"));
  EXPECT_THAT(answer.body, HasSubstr(R"("n": 123456789012345678901234567890, "f": 1.0)"));
}

TEST_F(InterpreterTest, EnvironmentAndDirectory) {
  InitRequest init;
  init.env_vars = std::map<std::string, std::string>{{"FROM", "sandbox"}, {"OVER", "sandbox"}};
  state_.apply(std::move(init));
  const std::string id =
      new_context(R"({"cwd":"/nowhere","env_vars":{"OVER":"context","MORE":"é"}})");
  const json::value start = execute({{"code", "show start"}, {"context_id", id}})->result();
  EXPECT_EQ(start.at("cwd"), "/nowhere");
  EXPECT_EQ(start.at("env").at("FROM"), "sandbox");
  EXPECT_EQ(start.at("env").at("OVER"), "context");
  EXPECT_EQ(start.at("env").at("MORE"), "é");
  EXPECT_EQ(start.at("env").at("E2B_SANDBOX"), "true");
  EXPECT_TRUE(start.at("env").as_object().contains("HOME"));
  EXPECT_EQ(execute({{"code", "show session"}, {"context_id", id}})->result(), true);
  EXPECT_EQ(json::serialize(execute({{"code", "show descriptors"}, {"context_id", id}})->result()),
            "[0,1,2,3]");
}

TEST_F(InterpreterTest, Bounds) {
  for (std::size_t i = interpreter_->contexts().size(); i < kMaxContexts; ++i)
    ASSERT_TRUE(interpreter_->create({}).ok());
  const Answer answer = request("POST", "/contexts");
  EXPECT_EQ(answer.head.status, 429);
  EXPECT_THAT(answer.body, HasSubstr("Failed to create context: "));
}

}  // namespace
}  // namespace atl::agent::interpreter
