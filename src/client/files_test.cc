#include "client/files.h"

#include "agent/filesystem.pb.h"
#include "client/testing.h"
#include "rpc/connect.h"

namespace atl::client {
namespace {

namespace pb = ::filesystem;

struct Seen {
  std::string target;
  std::string type;
  std::string token;
  std::string body;
  std::optional<std::uint64_t> length;
};

net::Task<Result<pb::StatResponse>> stat(rpc::CallContext&, const pb::StatRequest& in) {
  if (in.path() == "none") co_return make_error(Errc::not_found, "file not found: none");
  if (in.path() == "full") co_return make_error(Errc::internal, "mkdir: no space left on device");
  pb::StatResponse out;
  auto* entry = out.mutable_entry();
  entry->set_name("f");
  entry->set_path("/home/user/f");
  entry->set_type(pb::FILE_TYPE_FILE);
  entry->set_size(4);
  entry->mutable_modified_time()->set_seconds(12);
  entry->mutable_modified_time()->set_nanos(345'000'000);
  co_return out;
}

net::Task<void> send_text(net::Exchange& exchange, int status, std::string text) {
  auto sending = exchange.response.send(status, {}, std::move(text));
  (void)co_await std::move(sending);
}

// GET answers by the path; POST keeps the body.
net::Task<void> serve_files(net::Exchange& exchange, Seen& seen) {
  seen.target = exchange.request.target;
  seen.type = exchange.request.headers.get("Content-Type");
  seen.token = exchange.request.headers.get("X-Access-Token");
  const std::string path = exchange.request.query_param("path").value_or("");
  if (exchange.request.method == "POST") {
    if (path == "full") {
      co_await send_text(exchange, 507, R"({"code":507,"message":"not enough disk space"})");
      co_return;
    }
    seen.length = exchange.body.content_length();
    auto reading = exchange.body.read_all(64 << 20);
    auto body = co_await std::move(reading);
    if (!body.ok()) co_return;
    seen.body = std::move(*body);
    co_await send_text(exchange, 200, path == "odd" ? "{}" : R"([{"path":"/home/user/f"}])");
    co_return;
  }
  if (path == "none") {
    co_await send_text(exchange, 404, R"({"code":404,"message":"path 'none' does not exist"})");
    co_return;
  }
  if (path == "broken") {
    (void)co_await exchange.response.start(200, {}, 100);
    (void)co_await exchange.response.write("half");
    exchange.response.abort();
    co_return;
  }
  if (path == "chunked") {
    (void)co_await exchange.response.start(200, {}, std::nullopt);
    for (int i = 0; i < 3; ++i) (void)co_await exchange.response.write("abc");
    (void)co_await exchange.response.finish();
    co_return;
  }
  co_await send_text(exchange, 200, "text");
}

net::Task<void> serve(rpc::Router& router, net::Exchange& exchange, Seen& seen) {
  if (exchange.request.path() == "/files") {
    co_await serve_files(exchange, seen);
  } else {
    co_await router.handle(exchange);
  }
}

net::Task<Result<std::size_t>> count_down(std::shared_ptr<int> left, std::span<char> into) {
  if (*left < 0) co_return make_error(Errc::aborted, "the source failed");
  if (*left == 0) co_return std::size_t(0);
  --*left;
  std::fill_n(into.begin(), 1000, 'z');
  co_return std::size_t(1000);
}

class Files : public ::testing::Test {
 protected:
  Files() { router_.unary<pb::StatRequest, pb::StatResponse>("/filesystem.Filesystem/Stat", stat); }
  Source source(int pieces) {
    auto left = std::make_shared<int>(pieces);
    return [left](std::span<char> into) { return count_down(left, into); };
  }
  Result<void> send(std::string path, int pieces, std::optional<std::uint64_t> length) {
    return agent_.run(upload(agent_.inside(), std::move(path), source(pieces), length, "root"));
  }
  Result<std::string> read(std::string path, std::size_t limit = 100) {
    return agent_.run(read_file(agent_.inside(), std::move(path), limit));
  }

  Seen seen_;
  rpc::Router router_;
  testing::FakeAgent agent_{
      [this](net::Exchange& exchange) { return serve(router_, exchange, seen_); }};
};

TEST_F(Files, Stats) {
  auto entry = agent_.run(stat_file(agent_.inside(), "f"));
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_EQ(entry->path, "/home/user/f");
  EXPECT_EQ(entry->type, EntryType::file);
  EXPECT_EQ(entry->size, 4u);
  EXPECT_EQ(entry->modified_ms, 12'345);
  EXPECT_EQ(agent_.run(stat_file(agent_.inside(), "none")).error().code, Errc::not_found);
  EXPECT_EQ(agent_.run(stat_file(agent_.inside(), "full")).error().code, Errc::resource_exhausted);
}

TEST_F(Files, Reads) {
  EXPECT_EQ(*read("a b&c"), "text");
  EXPECT_EQ(seen_.target, "/files?path=a%20b%26c");
  EXPECT_EQ(seen_.token, "secret");
  EXPECT_EQ(*read("chunked"), "abcabcabc");
  EXPECT_EQ(read("none").error().code, Errc::not_found);
  EXPECT_EQ(read("broken", 200).error().code, Errc::data_loss);
}

TEST_F(Files, ReadsNoMoreThanTheLimit) {
  EXPECT_TRUE(read("f", 4).ok());
  EXPECT_EQ(read("f", 3).error().code, Errc::resource_exhausted);
  EXPECT_TRUE(read("chunked", 9).ok());
  EXPECT_EQ(read("chunked", 8).error().code, Errc::resource_exhausted);
}

TEST_F(Files, Writes) {
  const std::string bytes(600'000, 'b');
  auto path = agent_.run(write_file(agent_.inside(), "f", bytes));
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(*path, "/home/user/f");
  EXPECT_EQ(seen_.body, bytes);
  EXPECT_EQ(seen_.length, bytes.size());
  EXPECT_EQ(seen_.type, "application/octet-stream");
  EXPECT_TRUE(agent_.run(write_file(agent_.inside(), "f", "")).ok());
  EXPECT_EQ(agent_.run(write_file(agent_.inside(), "full", bytes)).error().code,
            Errc::resource_exhausted);
  EXPECT_EQ(agent_.run(write_file(agent_.inside(), "odd", "x")).error().code, Errc::data_loss);
}

TEST_F(Files, UploadsWithAndWithoutLength) {
  ASSERT_TRUE(send("f", 3, 3000).ok());
  EXPECT_EQ(seen_.body, std::string(3000, 'z'));
  EXPECT_EQ(seen_.length, 3000u);
  EXPECT_EQ(seen_.target, "/files?path=f&username=root");
  ASSERT_TRUE(send("f", 5, std::nullopt).ok());
  EXPECT_EQ(seen_.body, std::string(5000, 'z'));
  EXPECT_EQ(seen_.length, std::nullopt);
}

TEST_F(Files, UploadsRefuseAWrongLength) {
  EXPECT_EQ(send("f", 3, 3001).error().code, Errc::invalid_argument);
  EXPECT_EQ(send("f", 3, 2999).error().code, Errc::invalid_argument);
  EXPECT_EQ(send("f", -1, std::nullopt).error().code, Errc::aborted);
}

}  // namespace
}  // namespace atl::client
