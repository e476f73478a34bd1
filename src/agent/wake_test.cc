// POST /wake: identity after a restore, and the hooks of users' programs.
#include "agent/wake.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "agent/agent_test_support.h"
#include "agent/hooks.h"
#include "base/json.h"

namespace atl::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_text;
using testing::write_text;

const std::string kSeed(64, 'a');

TEST(Wake, Parses) {
  const auto full = parse_wake(R"({"forked":true,"seed":")" + kSeed +
                               R"(","hostname":"box-2","sandboxId":"i2","accessToken":"t"})");
  ASSERT_TRUE(full.ok());
  EXPECT_TRUE(full->forked);
  EXPECT_EQ(full->seed, kSeed);
  EXPECT_EQ(full->hostname, "box-2");
  EXPECT_EQ(full->init.sandbox_id, "i2");
  EXPECT_EQ(full->init.access_token, "t");
  const auto plain = parse_wake("{}");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->forked);
  for (const std::string& bad :
       {std::string(R"({"forked":true})"), std::string(R"({"forked":1})"), std::string("[]"),
        std::string(R"({"seed":"abc"})"), R"({"seed":")" + std::string(64, 'g') + R"("})",
        std::string(R"({"hostname":"a.b"})"), std::string(R"({"hostname":"-a"})"),
        std::string(R"({"hostname":""})"), std::string(R"({"envVars":1})"), std::string("")}) {
    EXPECT_FALSE(parse_wake(bad).ok()) << bad;
  }
}

TEST(Wake, SeedsDiffer) {
  EXPECT_EQ(derive_seed(kSeed, "a").size(), 64U);
  EXPECT_EQ(derive_seed(kSeed, "a"), derive_seed(kSeed, "a"));
  EXPECT_NE(derive_seed(kSeed, "a"), derive_seed(kSeed, "b"));
  EXPECT_NE(derive_seed(kSeed, "a"), derive_seed(std::string(64, 'b'), "a"));
}

TEST(Wake, HostName) {
  testing::TempDir root;
  std::filesystem::create_directory(root / "etc");
  write_text(root / "etc/hostname", "e2b\n");
  write_text(root / "etc/hosts",
             "127.0.0.1\tlocalhost e2b\n::1\tlocalhost\n10.0.0.1 e2b.example\n");
  ASSERT_TRUE(set_host_name("copy", root.path()).ok());
  EXPECT_EQ(read_text(root / "etc/hostname"), "copy\n");
  EXPECT_EQ(read_text(root / "etc/hosts"),
            "127.0.0.1\tlocalhost copy\n::1\tlocalhost\n10.0.0.1 e2b.example\n");
  // Links that somebody put there are not followed.
  write_text(root / "mine", "e2b\n");
  std::filesystem::remove(root / "etc/hostname");
  std::filesystem::create_symlink(root / "mine", root / "etc/hostname");
  EXPECT_FALSE(set_host_name("other", root.path()).ok());
  EXPECT_EQ(read_text(root / "mine"), "e2b\n");
}

class HooksTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(reaper_.start().ok()); }
  void hook(const std::string& name, const std::string& script, mode_t mode = 0755) {
    write_text(directory_ / name, "#!/bin/sh\n" + script + "\n");
    ASSERT_EQ(::chmod((directory_ / name).c_str(), mode), 0);
  }
  void run(std::chrono::milliseconds each = std::chrono::seconds(60),
           std::chrono::milliseconds all = std::chrono::seconds(60)) {
    const auto all_hooks = [&]() -> net::Task<bool> {
      Hooks hooks;
      hooks.directory = directory_.path();
      hooks.env = {"PATH=/usr/bin:/bin", "OUT=" + (scratch_ / "out"), "ATOLL_SEED=" + kSeed};
      hooks.each = each;
      hooks.all = all;
      co_await run_hooks(io_, reaper_, logs_, std::move(hooks));
      co_return true;
    };
    EXPECT_TRUE(testing::run_task(io_, all_hooks()));
  }
  std::string logged() const { return json::serialize(logs_.after(0)); }

  testing::TempDir scratch_;
  testing::TempDir directory_;
  net::asio::io_context io_{1};
  Reaper reaper_{io_};
  LogRing logs_;
};

TEST_F(HooksTest, InOrderWithTheirVariables) {
  hook("20-second", "echo two $ATOLL_SEED >> $OUT");
  hook("10-first", "echo one >> $OUT; echo said; exit 3");
  hook("30-not-executable", "echo three >> $OUT", 0644);
  hook(".hidden", "echo four >> $OUT");
  std::filesystem::create_directory(directory_ / "40-directory");
  run();
  EXPECT_EQ(read_text(scratch_ / "out"), "one\ntwo " + kSeed + "\n");
  EXPECT_THAT(logged(), HasSubstr("10-first: exit status 3: said"));
  EXPECT_THAT(logged(), HasSubstr("20-second: exit status 0"));
}

TEST_F(HooksTest, WhatOthersCanChangeIsNotRun) {
  hook("10-open", "echo one >> $OUT", 0777);
  hook("20-closed", "echo two >> $OUT");
  run();
  EXPECT_EQ(read_text(scratch_ / "out"), "two\n");
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0777), 0);
  run();
  EXPECT_EQ(read_text(scratch_ / "out"), "two\n");
  EXPECT_THAT(logged(), HasSubstr("hooks are not run"));
}

TEST_F(HooksTest, EndsWhatTakesTooLongAndGoesOn) {
  hook("10-hangs", "echo began; sleep 1000 & trap '' TERM INT; sleep 1000");
  hook("20-next", "echo two >> $OUT");
  run(std::chrono::seconds(3));
  EXPECT_EQ(read_text(scratch_ / "out"), "two\n");
  EXPECT_THAT(logged(), HasSubstr("10-hangs: ended after its time: began"));
}

TEST_F(HooksTest, ManyWordsAndBackgroundProcesses) {
  hook("10-talks", "head -c 1000000 /dev/zero | tr '\\0' x; sleep 1000 & echo done > $OUT");
  run();
  EXPECT_EQ(read_text(scratch_ / "out"), "done\n");
  EXPECT_LT(logged().size(), 10'000U);
}

TEST_F(HooksTest, NoTimeLeftForAll) {
  hook("10-slow", "sleep 1000");
  hook("20-next", "echo two >> $OUT");
  run(std::chrono::seconds(60), std::chrono::milliseconds(300));
  EXPECT_THAT(logged(), HasSubstr("no time is left"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
}

class WakeTest : public AgentTest {
 protected:
  std::string logged() {
    return request(Via::host, "GET", "/logs", {{"X-Access-Token", "new"}}).body;
  }
};

TEST_F(WakeTest, TakesOnANewIdentity) {
  init(R"({"accessToken":"old","sandboxId":"i1","envVars":{"A":"1"},
           "timestamp":"2090-01-01T00:00:00Z"})");
  const std::string body = R"({"forked":true,"seed":")" + kSeed +
                           R"(","accessToken":"new","sandboxId":"i2","envVars":{"B":"2"},
                               "timestamp":"2026-01-01T00:00:00Z"})";
  EXPECT_EQ(request(Via::tcp, "POST", "/wake", {}, body).head.status, 404);
  EXPECT_EQ(request(Via::host, "GET", "/wake", {{"X-Access-Token", "old"}}).head.status, 405);
  EXPECT_EQ(request(Via::host, "POST", "/wake", {}, R"({"forked":true})").head.status, 400);
  EXPECT_EQ(agent_->state().access_token(), "old");
  EXPECT_EQ(request(Via::host, "POST", "/wake", {}, body).head.status, 204);
  EXPECT_EQ(request(Via::tcp, "GET", "/envs", {{"X-Access-Token", "old"}}).head.status, 401);
  const auto envs = parse_json(request(Via::tcp, "GET", "/envs", {{"X-Access-Token", "new"}}).body);
  ASSERT_TRUE(envs.ok());
  EXPECT_EQ(envs->at("E2B_SANDBOX_ID"), "i2");
  EXPECT_EQ(envs->at("B"), "2");
  EXPECT_FALSE(envs->as_object().contains("A"));
  EXPECT_EQ(read_text(scratch_ / "markers/.E2B_SANDBOX_ID"), "i2");
  EXPECT_THAT(logged(), HasSubstr("woken as a copy"));
  EXPECT_THAT(logged(), HasSubstr("is not the server's"));
}

TEST_F(WakeTest, RunsTheHooksOfItsKind) {
  for (const char* kind : {"after-fork.d", "after-resume.d"}) {
    std::filesystem::create_directories(scratch_ / "hooks/" + kind);
    const std::string path = scratch_ / "hooks/" + kind + "/hook";
    write_text(path, "#!/bin/sh\necho $ATOLL_SANDBOX_ID $ATOLL_SEED > " + (scratch_ / kind) + "\n");
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }
  EXPECT_EQ(request(Via::host, "POST", "/wake", {}, R"({"sandboxId":"i1"})").head.status, 204);
  EXPECT_EQ(read_text(scratch_ / "after-resume.d"), "i1\n");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "after-fork.d"));
  EXPECT_EQ(request(Via::host, "POST", "/wake", {},
                    R"({"forked":true,"sandboxId":"i2","seed":")" + kSeed + R"("})")
                .head.status,
            204);
  EXPECT_EQ(read_text(scratch_ / "after-fork.d"), "i2 " + derive_seed(kSeed, "hooks") + "\n");
}

}  // namespace
}  // namespace atl::agent
