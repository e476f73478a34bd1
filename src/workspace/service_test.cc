#include "workspace/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "api_server/api_server.h"
#include "api_server/errors.h"
#include "base/encoding.h"
#include "base/ids.h"
#include "engine/completion.h"
#include "engine/testing/http.h"
#include "net/http_server.h"
#include "store/blobs/directory.h"
#include "workspace/testing.h"

namespace atl::workspace {
namespace {

using engine::testing::Got;
using ::testing::HasSubstr;

net::Task<Result<void>> nothing() { co_return Result<void>(); }
net::Task<Result<void>> wait_for(std::shared_ptr<engine::Completion> event) {
  auto waiting = event->wait(std::chrono::seconds(60));
  co_await std::move(waiting);
  co_return Result<void>();
}

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest()
      : store(*blobs::open_directory((f.home.path() / "workspaces").string())),
        tricky(*store),
        workspaces(tricky, "0123abcd"),
        service(workspaces, *f.engine),
        api(*f.engine, *f.store, {}, {&service}),
        server(f.threads.io, {.error_body = api::error_body},
               [this](net::Exchange& exchange) { return api.handle(exchange); }) {
    port = *server.listen_tcp("127.0.0.1:0", "api");
  }
  ~ServiceTest() override { f.run(server.shutdown(std::chrono::milliseconds(0))); }

  Got call(const std::string& method, const std::string& target, const std::string& body = {}) {
    return engine::testing::fetch(f, port, method, "/workspaces" + target,
                                  {{"X-API-KEY", f.key.secret}}, body);
  }
  static json::value parsed(const Got& got) {
    auto value = parse_json(got.body);
    EXPECT_TRUE(value.ok()) << got.body;
    return value.ok() ? *value : json::value();
  }
  static std::string error_of(const Got& got, int status) {
    EXPECT_EQ(got.status, status) << got.body;
    const json::value value = parsed(got);
    EXPECT_EQ(value.at("code").to_number<int>(), status);
    return std::string(value.at("message").as_string());
  }

  engine::testing::Fixture f;
  std::unique_ptr<blobs::BlobStore> store;
  testing::TrickyStore tricky;
  BlobWorkspaces workspaces;
  WorkspaceService service;
  api::ApiServer api;
  net::HttpServer server;
  std::uint16_t port = 0;
};

TEST_F(ServiceTest, NeedsAKey) {
  EXPECT_EQ(engine::testing::fetch(f, port, "GET", "/workspaces").status, 401);
  EXPECT_EQ(engine::testing::fetch(f, port, "PUT", "/workspaces/w/files?path=/a").status, 401);
}

TEST_F(ServiceTest, FilesComeAndGo) {
  EXPECT_EQ(call("GET", "").body, "[]");
  Got put = call("PUT", "/w/files?path=/a%20b/c.txt", "hello");
  ASSERT_EQ(put.status, 201) << put.body;
  const std::string version(parsed(put).at("version").as_string());
  EXPECT_EQ(parsed(put).at("path").as_string(), "/a b/c.txt");
  EXPECT_EQ(parsed(put).at("size").to_number<int>(), 5);
  ASSERT_EQ(call("PUT", "/w/files?path=/a%20b/c.txt", "second").status, 201);
  const Got got = call("GET", "/w/files?path=/a+b/c.txt");
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, "second");
  EXPECT_EQ(got.headers.get("Content-Type"), "application/octet-stream");
  EXPECT_EQ(call("GET", "/w/files?path=/a+b/c.txt&version=" + version).body, "hello");
  EXPECT_EQ(parsed(call("GET", "/w/entries")).as_array().size(), 1u);
  EXPECT_EQ(parsed(call("GET", "/w/entries?versions=true")).as_array().size(), 2u);
  const Got restored =
      call("POST", "/w/restore", R"({"path":"/a b/c.txt","version":")" + version + R"("})");
  EXPECT_EQ(restored.status, 201) << restored.body;
  EXPECT_EQ(call("GET", "/w/files?path=/a+b/c.txt").body, "hello");
  const json::value info = parsed(call("GET", "/w"));
  EXPECT_EQ(info.at("files").to_number<int>(), 1);
  EXPECT_EQ(info.at("versions").to_number<int>(), 3);
  EXPECT_EQ(info.at("bytes").to_number<int>(), 16);
  EXPECT_EQ(parsed(call("GET", "")).as_array().size(), 1u);
  EXPECT_EQ(call("DELETE", "/w/files?path=/a%20b/c.txt").status, 204);
  error_of(call("GET", "/w/files?path=/a%20b/c.txt"), 404);
  EXPECT_EQ(call("DELETE", "/w").status, 204);
  EXPECT_THAT(error_of(call("GET", "/w"), 404), HasSubstr("no workspace 'w'"));
  error_of(call("GET", "/w/entries"), 404);
}

TEST_F(ServiceTest, Pages) {
  for (int i = 0; i < 5; ++i)
    ASSERT_EQ(call("PUT", "/w/files?path=/d/" + std::to_string(i), "x").status, 201);
  std::vector<std::string> seen;
  std::string token;
  do {
    const Got page = call("GET", "/w/entries?prefix=/d&limit=2&nextToken=" + token);
    ASSERT_EQ(page.status, 200) << page.body;
    const json::value files = parsed(page);
    for (const json::value& file : files.as_array())
      seen.push_back(std::string(file.at("path").as_string()));
    token = page.headers.get("X-Next-Token");
  } while (!token.empty());
  EXPECT_THAT(seen, ::testing::ElementsAre("/d/0", "/d/1", "/d/2", "/d/3", "/d/4"));
  error_of(call("GET", "/w/entries?limit=0"), 400);
  error_of(call("GET", "/w/entries?limit=x"), 400);
  error_of(call("GET", "/w/entries?nextToken=!"), 400);
}

TEST_F(ServiceTest, QuotasAre507) {
  const Got set = call("PUT", "/w", R"({"maxBytes":10,"maxFiles":2,"keepVersions":2})");
  ASSERT_EQ(set.status, 200) << set.body;
  EXPECT_EQ(call("PUT", "/w/files?path=/a", "12345678").status, 201);
  EXPECT_THAT(error_of(call("PUT", "/w/files?path=/b", "12345678"), 507), HasSubstr("quota"));
  error_of(call("PUT", "/w", R"({"maxBytes":-1})"), 400);
  error_of(call("PUT", "/w", R"({"keepVersions":0})"), 400);
  error_of(call("PUT", "/w", R"({"maxFiles":"many"})"), 400);
  error_of(call("PUT", "/w", "[]"), 400);
}

TEST_F(ServiceTest, BadNamesAndPaths) {
  for (const char* path : {"..%2fa", "/%2e%2e/a", "/a/%2e%2e", "/a%00b", "/a%0ab", "/%ff", "/", ""})
    error_of(call("PUT", std::string("/w/files?path=") + path, "x"), 400);
  error_of(call("PUT", "/w/files?path=/" + std::string(700, 'a'), "x"), 400);
  error_of(call("PUT", "/w/files", "x"), 400);
  error_of(call("PUT", "/%2e%2e/files?path=/a", "x"), 400);
  error_of(call("PUT", "/a%2fb/files?path=/a", "x"), 400);
  error_of(call("GET", "/w/files?path=/a&version=../x"), 400);
  EXPECT_EQ(call("POST", "/w/files?path=/a", "x").status, 405);
}

TEST_F(ServiceTest, ABusyWorkspaceIsListedByItsName) {
  ASSERT_EQ(call("PUT", "/busy/files?path=/a", "x").status, 201);
  ASSERT_EQ(call("PUT", "/free/files?path=/a", "x").status, 201);
  const auto over = std::make_shared<engine::Completion>();
  std::atomic<int> held = 0;
  tricky.after_put = [&](const std::string& key) {
    if (key.starts_with("i/")) ++held;
    return key.starts_with("i/") ? wait_for(over) : nothing();
  };
  auto writing = std::async(std::launch::async,
                            [&] { return call("PUT", "/busy/files?path=/a", "y").status; });
  EXPECT_TRUE(f.eventually([&] { return held > 0; }));
  const Got listed = call("GET", "");
  over->set();
  EXPECT_EQ(writing.get(), 201);
  ASSERT_EQ(listed.status, 200) << listed.body;
  const json::value names = parsed(listed);
  ASSERT_EQ(names.as_array().size(), 2u);
  EXPECT_EQ(names.at(0), (json::object{{"name", "busy"}}));
  EXPECT_EQ(names.at(1).at("files").to_number<int>(), 1);
}

TEST_F(ServiceTest, SaveAndLoadKeepTheirSandbox) {
  const auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok()) << made.error().message;
  const SandboxId id = made->record.id;
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), id, std::chrono::seconds(30)).ok());
  // What comes of it is not the point: the agent here knows nothing of files.
  (void)call("POST", "/w/save", R"({"sandboxID":")" + id.str() + R"(","sandboxPath":"a"})");
  EXPECT_GT(f.engine->info(f.caller(), id)->record.end_at, now() + std::chrono::seconds(200));
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), id, std::chrono::seconds(900)).ok());
  (void)call("POST", "/w/load", R"({"sandboxID":")" + id.str() + R"(","workspacePath":"/a"})");
  EXPECT_GT(f.engine->info(f.caller(), id)->record.end_at, now() + std::chrono::seconds(600));
}

TEST_F(ServiceTest, SaveAndLoadNeedASandboxOfTheTeam) {
  EXPECT_THAT(
      error_of(call("POST", "/w/save", R"({"sandboxID":"iunknown","sandboxPath":"a"})"), 404),
      HasSubstr("iunknown"));
  EXPECT_THAT(
      error_of(call("POST", "/w/load", R"({"sandboxID":"iunknown","workspacePath":"/a"})"), 404),
      HasSubstr("on the server that has the sandbox"));
  error_of(call("POST", "/w/save", R"({"sandboxPath":"a"})"), 400);
  error_of(call("POST", "/w/save", R"({"sandboxID":"../x","sandboxPath":"a"})"), 400);
  error_of(call("POST", "/w/save", "{"), 400);
}

}  // namespace
}  // namespace atl::workspace
