// What every table has to do, asked of each.
#include "session/table.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>

#include "engine/testing/fixture.h"
#include "session/redis_table.h"
#include "session/redis_testing.h"
#include "session/sqlite_table.h"

namespace atl::session {
namespace {

using std::chrono::milliseconds;
using testing::RedisServer;

struct Backend {
  virtual ~Backend() = default;
  virtual Table& table() = 0;
};

struct SqliteBackend final : Backend {
  SqliteBackend() : opened(store::Store::open((home.path() / "table.db").string()).value()) {}
  Table& table() override { return made; }
  engine::testing::Home home;
  std::unique_ptr<store::Store> opened;
  std::unique_ptr<store::SessionRows> rows = store::SessionRows::open(*opened).value();
  SqliteTable made{*rows};
};

struct RedisBackend final : Backend {
  Table& table() override { return made; }
  RedisServer server;
  Redis redis{server.address()};
  RedisTable made{redis};
};

struct Which {
  const char* name;
  std::function<std::unique_ptr<Backend>()> make;
};

class TableTest : public ::testing::TestWithParam<Which> {
 protected:
  void SetUp() override {
    if (std::string_view(GetParam().name) == "Redis") ATOLL_NEEDS_REDIS();
    backend_ = GetParam().make();
  }
  template <class T>
  T run(net::Task<T> task) {
    auto kept = std::make_shared<std::optional<T>>();
    net::asio::co_spawn(net::asio::make_strand(threads_.io), keep(std::move(task), kept),
                        net::asio::use_future)
        .get();
    return std::move(**kept);
  }
  template <class T>
  static net::Task<void> keep(net::Task<T> task, std::shared_ptr<std::optional<T>> into) {
    into->emplace(co_await std::move(task));
  }
  Table& table() { return backend_->table(); }
  static Row row(const std::string& key, const std::string& team = "default") {
    Row r;
    r.team = team;
    r.key = key;
    r.ready = true;
    r.node = "n1";
    r.claim = "c\n\"1\"";
    r.sandbox_id = "i123";
    r.options = R"({"metadata":{"a":"Grüße\n"}})";
    r.created_at = from_ns(1'700'000'000'123'456'000);
    r.used_at = from_ns(1'700'000'001'123'456'000);
    return r;
  }

  engine::testing::Threads threads_{3};
  std::unique_ptr<Backend> backend_;
};

TEST_P(TableTest, KeepsEveryField) {
  for (const std::string& key :
       std::vector<std::string>{"a", "with space/and%", "Grüße", std::string(256, 'k')}) {
    Row written = row(key);
    const auto version = run(table().put(written)).value();
    ASSERT_TRUE(version);
    written.version = *version;
    const auto read = run(table().get("default", key)).value();
    ASSERT_TRUE(read) << key;
    EXPECT_EQ(*read, written) << key;
  }
  EXPECT_FALSE(run(table().get("default", "other")).value());
  EXPECT_FALSE(run(table().get("others", "a")).value());
}

TEST_P(TableTest, WritesOnlyOverWhatWasRead) {
  Row r = row("a");
  r.version = *run(table().put(r)).value();
  EXPECT_FALSE(run(table().put(row("a"))).value());
  Row stale = r;
  r.sandbox_id = "i456";
  r.version = *run(table().put(r)).value();
  EXPECT_FALSE(run(table().put(stale)).value());
  EXPECT_FALSE(run(table().remove(stale)).value());
  EXPECT_EQ(run(table().get("default", "a")).value()->sandbox_id, "i456");
  EXPECT_TRUE(run(table().remove(r)).value());
  EXPECT_FALSE(run(table().remove(r)).value());
  EXPECT_FALSE(run(table().put(r)).value()) << "a version never comes back";
  EXPECT_TRUE(run(table().put(row("a"))).value());
}

TEST_P(TableTest, LeasesRunOut) {
  Row r = row("a");
  r.ready = false;
  r.sandbox_id.clear();
  r.lease = std::chrono::minutes(1);
  r.version = *run(table().put(r)).value();
  const milliseconds left = run(table().get("default", "a")).value()->lease;
  EXPECT_GT(left, std::chrono::seconds(50));
  EXPECT_LE(left, std::chrono::minutes(1));
  r.lease = milliseconds(1);
  ASSERT_TRUE(run(table().put(r)).value());
  EXPECT_TRUE(engine::testing::Fixture::eventually(
      [&] { return run(table().get("default", "a")).value()->lease == milliseconds(0); }));
}

TEST_P(TableTest, ListsByTeamOldestFirst) {
  Row old = row("z");
  old.created_at = from_ns(1000);
  ASSERT_TRUE(run(table().put(row("a"))).value());
  ASSERT_TRUE(run(table().put(old)).value());
  ASSERT_TRUE(run(table().put(row("b", "others"))).value());
  const auto rows = run(table().list("default")).value();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].key, "z");
  EXPECT_EQ(rows[1].options, row("a").options);
  EXPECT_EQ(run(table().list("")).value().size(), 3u);
  EXPECT_EQ(run(table().list("nobody")).value().size(), 0u);
}

TEST_P(TableTest, ListsManyOnceEach) {
  for (int i = 0; i < 1'200; ++i) ASSERT_TRUE(run(table().put(row(std::to_string(i)))).value());
  EXPECT_EQ(run(table().list("default")).value().size(), 1'200u);
}

TEST_P(TableTest, OfManyWritersOneSucceeds) {
  for (int round = 0; round < 20; ++round) {
    const std::string key = "k" + std::to_string(round);
    std::vector<std::future<bool>> all;
    for (int i = 0; i < 10; ++i) {
      all.push_back(std::async(std::launch::async,
                               [&] { return run(table().put(row(key))).value().has_value(); }));
    }
    int won = 0;
    for (auto& each : all) won += each.get() ? 1 : 0;
    EXPECT_EQ(won, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, TableTest,
    ::testing::Values(Which{"Sqlite", [] { return std::make_unique<SqliteBackend>(); }},
                      Which{"Redis", [] { return std::make_unique<RedisBackend>(); }}),
    [](const auto& info) { return std::string(info.param.name); });

// ---- the client ----

TEST(RedisUrl, Parts) {
  const auto whole = parse_redis_url("redis://me:p%40ss@cache.example:7000/2").value();
  EXPECT_EQ(whole.host, "cache.example");
  EXPECT_EQ(whole.port, 7000);
  EXPECT_EQ(whole.user, "me");
  EXPECT_EQ(whole.password, "p@ss");
  EXPECT_EQ(whole.database, 2u);
  EXPECT_EQ(whole.shown(), "redis://cache.example:7000/2") << "never the password";
  EXPECT_EQ(parse_redis_url("redis://:x@h")->password, "x");
  EXPECT_EQ(parse_redis_url("redis://h")->port, 6379);
  EXPECT_EQ(parse_redis_url("redis://[::1]:7")->host, "::1");
  for (const char* bad : {"", "h:1", "http://h", "redis://", "redis://h:0", "redis://h:x",
                          "redis://h/x", "redis://me@h", "redis://:%zz@h", "rediss://h"})
    EXPECT_EQ(parse_redis_url(bad).error().code, Errc::invalid_argument) << bad;
}

class RedisTest : public ::testing::Test {
 protected:
  void SetUp() override { ATOLL_NEEDS_REDIS(); }
  Result<RedisValue> run(Redis& redis, std::vector<std::string> command) {
    auto kept = std::make_shared<std::optional<Result<RedisValue>>>();
    net::asio::co_spawn(net::asio::make_strand(threads_.io), keep(redis.run(command), kept),
                        net::asio::use_future)
        .get();
    return std::move(**kept);
  }
  static net::Task<void> keep(net::Task<Result<RedisValue>> task,
                              std::shared_ptr<std::optional<Result<RedisValue>>> into) {
    into->emplace(co_await std::move(task));
  }
  engine::testing::Threads threads_{2};
};

TEST_F(RedisTest, AnOutageIsToldAndEndsByItself) {
  RedisServer server;
  Redis redis(server.address());
  ASSERT_TRUE(run(redis, {"SET", "a", std::string("1\0\n2", 4)}).ok());
  server.stop();
  const auto refused = run(redis, {"GET", "a"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::unavailable);
  EXPECT_NE(refused.error().message.find(server.address().shown()), std::string::npos);
  EXPECT_NE(refused.error().message.find("Nothing was made or lost"), std::string::npos);
  server.start();
  const auto again = run(redis, {"GET", "a"});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->text, std::string("1\0\n2", 4));
}

TEST_F(RedisTest, ARestartBetweenTwoCommandsIsNotNoticed) {
  RedisServer server;
  Redis redis(server.address());
  ASSERT_TRUE(run(redis, {"SET", "a", "1"}).ok());
  server.stop();
  server.start();
  EXPECT_EQ(run(redis, {"GET", "a"})->text, "1");
}

TEST_F(RedisTest, AWrongPasswordIsTold) {
  RedisServer server;
  RedisAddress address = server.address();
  address.password = "wrong";
  Redis redis(address);
  const auto refused = run(redis, {"PING"});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("WRONGPASS"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(refused.error().message.find("wrong"), std::string::npos);
}

TEST_F(RedisTest, ASilentServerIsNotWaitedForForEver) {
  // A port that accepts and says nothing.
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(fd, 8), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  RedisAddress to;
  to.host = "127.0.0.1";
  to.port = ntohs(address.sin_port);
  Redis redis(
      to,
      {.threads = 1, .queue = 2, .command_time = milliseconds(100), .deadline = milliseconds(150)});
  std::vector<std::future<Errc>> all;
  for (int i = 0; i < 8; ++i) {
    all.push_back(
        std::async(std::launch::async, [&] { return run(redis, {"PING"}).error().code; }));
  }
  for (auto& each : all) EXPECT_EQ(each.get(), Errc::unavailable);
  ::close(fd);
}

}  // namespace
}  // namespace atl::session
