#include "store/blobs/s3.h"

#include <cstdlib>
#include <fstream>

#include "base/ids.h"
#include "net/http_server.h"
#include "store/blobs/conformance.h"
#include "store/blobs/s3_http.h"
#include "store/blobs/s3_xml.h"

namespace atl::blobs {
namespace {

// The promises, against a real server: ATOLL_TEST_S3 is a --blobs URL, with the keys in the
// environment (tests/e2e/raw/workspaces.test.mjs starts one and runs these).
class S3Test : public testing::Conformance {
 protected:
  void SetUp() override {
    const char* url = std::getenv("ATOLL_TEST_S3");
    if (url == nullptr) GTEST_SKIP() << "ATOLL_TEST_S3 names no S3 server";
    auto parsed = parse_s3(url);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    config = *parsed;
    config.prefix += "unit-" + random_hex(6) + "/";
    store = open_s3(config);
  }
  void TearDown() override {
    if (!store) return;
    for (const std::string& key : keys("", "", 10'000)) (void)runner.run(store->remove(key));
  }
  S3Config config;
};

ATOLL_BLOB_CONFORMANCE(S3Test)

TEST_F(S3Test, UnfinishedUploadsAreAborted) {
  S3Http http(config);
  S3Request begin{.method = "POST", .key = config.prefix + "d/mine", .query = {{"uploads", ""}}};
  ASSERT_TRUE(runner.run(http.send(begin)).ok());
  begin.key = config.prefix + "d/other";
  ASSERT_TRUE(runner.run(http.send(begin)).ok());
  const auto uploads = [&] {
    S3Request list{.query = {{"uploads", ""}, {"prefix", config.prefix}}};
    auto answer = runner.run(http.send(list));
    EXPECT_TRUE(answer.ok());
    return parse_fields(answer->body, "Upload").records().size();
  };
  EXPECT_EQ(uploads(), 2u);
  ASSERT_TRUE(
      runner.run(store->clean_up([](std::string_view key) { return key == "d/mine"; })).ok());
  EXPECT_EQ(uploads(), 1u);
  // A put whose source fails leaves none either.
  EXPECT_FALSE(runner
                   .run(store->put(
                       "d/x", testing::pattern_source(20 << 20, make_error(Errc::aborted, "gone"))))
                   .ok());
  EXPECT_EQ(uploads(), 1u);
  ASSERT_TRUE(runner.run(store->clean_up([](std::string_view) { return true; })).ok());
  EXPECT_EQ(uploads(), 0u);
}

TEST_F(S3Test, WrongKeysAreSaidSo) {
  for (const bool unknown : {false, true}) {
    S3Config wrong = config;
    (unknown ? wrong.access_key : wrong.secret_key) = "nonsense";
    auto other = open_s3(wrong);
    for (auto done : {runner.run(other->put_text("a", "x")), runner.run(other->remove("a"))}) {
      ASSERT_FALSE(done.ok());
      EXPECT_EQ(done.error().code, Errc::unavailable);
      EXPECT_EQ(done.error().sys_errno, EACCES);
      EXPECT_NE(done.error().message.find("refuses the server's keys"), std::string::npos);
      EXPECT_EQ(done.error().message.find(wrong.secret_key), std::string::npos);
    }
  }
}

TEST_F(S3Test, NoBucketIsSaidSo) {
  S3Config wrong = config;
  wrong.bucket = "there-is-no-such-bucket";
  auto listed = runner.run(open_s3(wrong)->list("", "", 1));
  ASSERT_FALSE(listed.ok());
  EXPECT_NE(listed.error().message.find("bucket"), std::string::npos) << listed.error().message;
}

// ---- without a server ----

class S3ConfigTest : public ::testing::Test {
 protected:
  S3ConfigTest() {
    ::setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    ::unsetenv("AWS_SESSION_TOKEN");
  }
  ~S3ConfigTest() override {
    restore("AWS_ACCESS_KEY_ID", id);
    restore("AWS_SECRET_ACCESS_KEY", secret);
  }
  static std::string now(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  }
  static void restore(const char* name, const std::string& value) {
    value.empty() ? ::unsetenv(name) : ::setenv(name, value.c_str(), 1);
  }
  const std::string id = now("AWS_ACCESS_KEY_ID");
  const std::string secret = now("AWS_SECRET_ACCESS_KEY");
};

TEST_F(S3ConfigTest, Urls) {
  auto config = parse_s3("s3://buck-et/a/b/?endpoint=http://127.0.0.1:9000&region=eu-west-1");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->bucket, "buck-et");
  EXPECT_EQ(config->prefix, "a/b/");
  EXPECT_EQ(config->region, "eu-west-1");
  EXPECT_TRUE(config->path_style);
  EXPECT_EQ(config->base_url(), "http://127.0.0.1:9000/buck-et");
  EXPECT_EQ(config->describe().find("secret"), std::string::npos);
  config = parse_s3("s3://bucket");
  EXPECT_EQ(config->base_url(), "https://bucket.s3.us-east-1.amazonaws.com");
  config = parse_s3("s3://bucket?endpoint=https%3A%2F%2Fs3.example.com%3A443&path_style=1");
  EXPECT_EQ(config->base_url(), "https://s3.example.com:443/bucket");
  EXPECT_EQ(config->prefix, "");
}

TEST_F(S3ConfigTest, BadUrls) {
  for (const char* url :
       {"s3://", "s3:///x", "s3://UPPER", "s3://ab", "s3://a..b", "s3://bucket?endpoint=ftp://x",
        "s3://bucket?endpoint=http://", "s3://bucket?endpoint=http://h/path",
        "s3://bucket?endpoint=http://u:p@h", "s3://bucket?path_style=yes", "s3://bucket?what=1",
        "s3://bucket/../x", "s3://bucket?region=", "dir:/x"}) {
    auto config = parse_s3(url);
    EXPECT_FALSE(config.ok()) << url;
    EXPECT_EQ(config.error().code, Errc::invalid_argument) << url;
  }
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
  auto config = parse_s3("s3://bucket");
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.error().message.find("AWS_SECRET_ACCESS_KEY"), std::string::npos);
}

TEST_F(S3ConfigTest, CredentialsFromAFile) {
  const std::string path = ::testing::TempDir() + "/credentials-" + random_hex(6);
  std::ofstream(path) << "# keys\n[other]\naws_access_key_id = NO\n[default]\n"
                         "aws_access_key_id = FROMFILE\naws_secret_access_key=s=e/c+\r\n";
  auto config = parse_s3("s3://bucket?credentials=" + path);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->access_key, "FROMFILE");
  EXPECT_EQ(config->secret_key, "s=e/c+");
  std::remove(path.c_str());
  EXPECT_FALSE(parse_s3("s3://bucket?credentials=" + path).ok());
}

TEST(S3Xml, ReadsListsAndErrors) {
  const XmlFields list = parse_fields(
      "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><IsTruncated>true</IsTruncated>"
      "<Contents><Key>a&amp;b</Key><Size>5</Size><Owner><ID>o</ID></Owner></Contents>"
      "<Contents><Key>c</Key></Contents><NextContinuationToken>t</NextContinuationToken>"
      "</ListBucketResult>",
      "Contents");
  EXPECT_TRUE(list.well_formed());
  ASSERT_EQ(list.records().size(), 2u);
  EXPECT_EQ(list.records()[0].at("Key"), "a&b");
  EXPECT_EQ(list.records()[0].at("Size"), "5");
  EXPECT_EQ(list.first("NextContinuationToken"), "t");
  EXPECT_EQ(list.first("IsTruncated"), "true");
}

TEST(S3Xml, RefusesWhatItDoesNotKnow) {
  EXPECT_FALSE(parse_fields("<a><b></a>").well_formed());
  EXPECT_FALSE(parse_fields("").well_formed());
  EXPECT_FALSE(parse_fields("<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>").well_formed());
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  EXPECT_FALSE(parse_fields(deep).well_formed());
  EXPECT_FALSE(parse_fields("<a>" + std::string(1 << 20, 'x') + "</a>").well_formed());
}

TEST(S3Errors, AreTyped) {
  const auto error = [](long status, const char* code) {
    return s3_error(status, std::string("<Error><Code>") + code + "</Code></Error>");
  };
  EXPECT_EQ(error(404, "NoSuchKey").code, Errc::not_found);
  EXPECT_EQ(error(404, "NoSuchBucket").code, Errc::failed_precondition);
  EXPECT_EQ(error(403, "SignatureDoesNotMatch").code, Errc::permission_denied);
  EXPECT_EQ(error(503, "SlowDown").code, Errc::unavailable);
  EXPECT_EQ(error(416, "InvalidRange").code, Errc::out_of_range);
  EXPECT_TRUE(is_retryable(error(500, "InternalError")));
  EXPECT_FALSE(is_retryable(error(403, "AccessDenied")));
}

// A server that fails a number of times: what is tried again, and what is not.
class FlakyTest : public ::testing::Test {
 protected:
  FlakyTest()
      : server(io, {}, [this](net::Exchange& exchange) { return answer(exchange); }),
        thread([this] { io.run(); }) {
    S3Config config;
    config.endpoint = "http://127.0.0.1:" + std::to_string(*server.listen_tcp("127.0.0.1:0", "s3"));
    config.bucket = "bucket";
    config.path_style = true;
    config.access_key = "AKID";
    config.secret_key = "secret";
    store = open_s3(config);
  }
  ~FlakyTest() override {
    store.reset();
    runner.run(finish());
    work.reset();
    thread.join();
  }
  net::Task<int> finish() {
    co_await server.shutdown(std::chrono::milliseconds(0));
    co_return 0;
  }
  net::Task<void> answer(net::Exchange& exchange) {
    auto reading = exchange.body.read_all(1 << 20);
    auto body = co_await std::move(reading);
    ++requests;
    authorization = exchange.request.headers.get("Authorization");
    hash = exchange.request.headers.get("x-amz-content-sha256");
    const bool fails = failures > 0;
    if (fails) --failures;
    (void)co_await exchange.response.send(fails ? status : 200, {}, fails ? "<Error/>" : "");
  }

  net::asio::io_context io;
  net::asio::executor_work_guard<net::asio::io_context::executor_type> work{io.get_executor()};
  net::HttpServer server;
  std::thread thread;
  testing::Runner runner;
  std::unique_ptr<BlobStore> store;
  std::atomic<int> requests = 0;
  std::atomic<int> failures = 0;
  int status = 503;
  std::string authorization;
  std::string hash;
};

TEST_F(FlakyTest, TriesAgain) {
  failures = 2;
  EXPECT_TRUE(runner.run(store->put_text("a", "hello")).ok());
  EXPECT_EQ(requests, 3);
  EXPECT_EQ(hash, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
  EXPECT_EQ(authorization.find("AWS4-HMAC-SHA256 Credential=AKID/"), 0u) << authorization;
  EXPECT_NE(authorization.find("x-amz-content-sha256"), std::string::npos) << authorization;
}

TEST_F(FlakyTest, ButNotForEver) {
  failures = 100;
  auto done = runner.run(store->put_text("a", "x"));
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Errc::unavailable);
  EXPECT_EQ(requests, 4);
}

TEST_F(FlakyTest, AndNotWhatIsRefused) {
  failures = 100;
  status = 403;
  EXPECT_FALSE(runner.run(store->put_text("a", "x")).ok());
  EXPECT_EQ(requests, 1);
}

}  // namespace
}  // namespace atl::blobs
