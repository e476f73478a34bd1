#include "agent/files.h"

#include <gtest/gtest.h>
#include <sys/xattr.h>

#include <ctime>

#include "agent/content.h"
#include "agent/gzip.h"
#include "agent/signature.h"
#include "agent/test_server.h"
#include "base/encoding.h"
#include "base/json.h"

namespace atl::agent {
namespace {

using testing::read_text;
using testing::TempDir;
using testing::TestServer;
using testing::write_text;
using Answer = net::HttpClient::Answer;

std::string gzip(std::string_view text) {
  auto encoder = GzipEncoder::create(6);
  std::string packed;
  std::vector<char> out(4096);
  while (!text.empty()) packed.append(out.data(), *encoder->encode(text, out));
  while (const std::size_t n = *encoder->finish(out)) packed.append(out.data(), n);
  return packed;
}

std::string gunzip(std::string_view packed) {
  auto decoder = GzipDecoder::create();
  std::string plain;
  std::vector<char> out(4096);
  while (true) {
    const auto n = decoder->decode(packed, out);
    if (!n.ok() || *n == 0) break;
    plain.append(out.data(), *n);
  }
  EXPECT_TRUE(decoder->complete());
  return plain;
}

class Files : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return dir_ / name; }
  std::string target(const std::string& name, const std::string& more = {}) const {
    return "/files?path=" + percent_encode(at(name)) + more;
  }
  Answer get(const std::string& name, net::Headers headers = {}) {
    return server_.request("GET", target(name), std::move(headers));
  }
  Answer put(const std::string& name, const std::string& text, net::Headers headers = {}) {
    headers.add("Content-Type", "application/octet-stream");
    return server_.request("POST", target(name), std::move(headers), text);
  }
  Answer post_parts(const std::string& url, const std::string& body, net::Headers headers = {}) {
    headers.add("Content-Type", "multipart/form-data; boundary=XX");
    return server_.request("POST", url, std::move(headers), body);
  }
  static std::string part(const std::string& disposition, const std::string& data) {
    return "--XX\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + data + "\r\n";
  }
  static void expect_error(const Answer& answer, int status, const std::string& message) {
    EXPECT_EQ(answer.head.status, status);
    EXPECT_EQ(answer.head.headers.get("Content-Type"), "application/json; charset=utf-8");
    EXPECT_EQ(answer.head.headers.get("X-Content-Type-Options"), "nosniff");
    const auto body = parse_json(answer.body);
    ASSERT_TRUE(body.ok()) << answer.body;
    EXPECT_EQ(body->at("code").as_int64(), status);
    EXPECT_EQ(body->at("message").as_string(), message);
  }
  std::string info(const std::string& name) const {
    return "{\"name\":\"" + name.substr(name.rfind('/') + 1) + "\",\"path\":\"" + at(name) +
           "\",\"type\":\"file\"}";
  }

  TempDir dir_;
  TestServer server_;
};

TEST_F(Files, RawRoundTrip) {
  const Answer up = put("new/dir/f.txt", "hello");
  EXPECT_EQ(up.head.status, 200);
  EXPECT_EQ(up.head.headers.get("Content-Type"), "application/json");
  EXPECT_EQ(up.body, "[" + info("new/dir/f.txt") + "]");
  const Answer down = get("new/dir/f.txt");
  EXPECT_EQ(down.head.status, 200);
  EXPECT_EQ(down.body, "hello");
  EXPECT_EQ(down.head.headers.get("Content-Length"), "5");
  EXPECT_EQ(down.head.headers.get("Content-Disposition"), "inline; filename=f.txt");
  EXPECT_EQ(down.head.headers.get("Content-Type"), "text/plain; charset=utf-8");
  EXPECT_EQ(down.head.headers.get("Vary"), "Accept-Encoding");
  EXPECT_EQ(down.head.headers.get("Accept-Ranges"), "bytes");
  EXPECT_TRUE(parse_http_date(down.head.headers.get("Last-Modified")).has_value());
  put("new/dir/f.txt", "x");
  EXPECT_EQ(read_text(at("new/dir/f.txt")), "x");
  EXPECT_EQ(put("empty", "").head.status, 200);
  EXPECT_EQ(get("empty").body, "");
}

TEST_F(Files, OverwriteKeepsTheMode) {
  write_text(at("script"), "old");
  ASSERT_EQ(::chmod(at("script").c_str(), 0750), 0);
  put("script", "new");
  struct stat st{};
  ASSERT_EQ(::stat(at("script").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0750U);
}

TEST_F(Files, LargeBodiesBothWays) {
  std::string text(3'000'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = char(i * 31 + i / 7001);
  EXPECT_EQ(put("big", text).head.status, 200);
  EXPECT_TRUE(read_text(at("big")) == text);
  const Answer down = get("big");
  EXPECT_EQ(down.head.headers.get("Content-Length"), "3000000");
  EXPECT_TRUE(down.body == text);
  const Answer packed = get("big", {{"Accept-Encoding", "gzip"}});
  EXPECT_EQ(packed.head.headers.get("Content-Encoding"), "gzip");
  EXPECT_EQ(packed.head.headers.get("Transfer-Encoding"), "chunked");
  EXPECT_TRUE(gunzip(packed.body) == text);
}

TEST_F(Files, GzipOnlyWhereItPaysForClientsThatListEverything) {
  write_text(at("tiny"), "x");
  write_text(at("middle"), std::string(100'000, 'm'));
  write_text(at("large"), std::string(2'000'000, 'l'));
  const net::Headers listed{{"Accept-Encoding", "gzip, deflate"}};
  EXPECT_FALSE(get("tiny", listed).head.headers.has("Content-Encoding"));
  EXPECT_EQ(get("middle", listed).head.headers.get("Content-Encoding"), "gzip");
  EXPECT_FALSE(get("large", listed).head.headers.has("Content-Encoding"));
  const net::Headers asked{{"Accept-Encoding", "gzip"}};
  for (const char* name : {"tiny", "middle", "large"}) {
    const Answer packed = get(name, asked);
    EXPECT_EQ(packed.head.headers.get("Content-Encoding"), "gzip") << name;
    EXPECT_EQ(gunzip(packed.body), read_text(at(name)));
  }
  expect_error(get("tiny", {{"Accept-Encoding", "identity;q=0"}}), 406,
               "no acceptable encoding found, supported: [gzip]");
}

TEST_F(Files, DownloadFailures) {
  expect_error(get("none"), 404, "path '" + at("none") + "' does not exist");
  expect_error(server_.request("GET", "/files?path=" + percent_encode(dir_.path())), 400,
               "path '" + dir_.path() + "' is a directory");
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  expect_error(get("fifo"), 400, "path '" + at("fifo") + "' is not a regular file");
  expect_error(server_.request("GET", "/files?path=~other/x"), 400,
               "failed to expand path '~other/x' for user '" + server_.state().default_user() +
                   "': cannot expand user-specific home dir");
  EXPECT_EQ(server_.request("GET", "/files?path=%FF").head.status, 400);
  expect_error(server_.request("GET", target("f", "&username=no-such-user")), 401,
               "error looking up user 'no-such-user': user: unknown user no-such-user");
  InitRequest init;
  init.default_workdir = dir_.path();
  server_.state().apply(std::move(init));
  expect_error(server_.request("GET", "/files"), 400, "path '" + dir_.path() + "' is a directory");
  const Answer put = server_.request("PUT", "/files");
  EXPECT_EQ(put.head.status, 405);
  EXPECT_EQ(put.head.headers.get("Allow"), "GET, POST");
  EXPECT_EQ(server_.request("GET", "/filesx").head.status, 404);
}

TEST_F(Files, RangesAndConditions) {
  write_text(at("f"), "0123456789");
  const Answer part = get("f", {{"Range", "bytes=2-4"}, {"Accept-Encoding", "gzip"}});
  EXPECT_EQ(part.head.status, 206);
  EXPECT_EQ(part.body, "234");
  EXPECT_EQ(part.head.headers.get("Content-Range"), "bytes 2-4/10");
  EXPECT_FALSE(part.head.headers.has("Content-Encoding"));
  const Answer beyond = get("f", {{"Range", "bytes=10-"}});
  EXPECT_EQ(beyond.head.status, 416);
  EXPECT_EQ(beyond.head.headers.get("Content-Range"), "bytes */10");
  const std::string modified(get("f").head.headers.get("Last-Modified"));
  const Answer same = get("f", {{"If-Modified-Since", modified}});
  EXPECT_EQ(same.head.status, 304);
  EXPECT_EQ(same.body, "");
  EXPECT_EQ(
      get("f", {{"Range", "bytes=0-1"}, {"Accept-Encoding", "identity;q=0, gzip"}}).head.status,
      406);
}

TEST_F(Files, FilesThatLieAboutTheirSize) {
  const std::string boot_id = read_text("/proc/sys/kernel/random/boot_id");
  ASSERT_FALSE(boot_id.empty());
  const std::string url = "/files?path=/proc/sys/kernel/random/boot_id";
  EXPECT_EQ(server_.request("GET", url).body, boot_id);
  EXPECT_EQ(gunzip(server_.request("GET", url, {{"Accept-Encoding", "gzip"}}).body), boot_id);
  const std::string page = "/sys/kernel/mm/transparent_hugepage/enabled";
  if (::access(page.c_str(), R_OK) == 0) {
    EXPECT_EQ(server_.request("GET", "/files?path=" + page).body, read_text(page));
  }
}

TEST_F(Files, MultipartNamesAndOrder) {
  const std::string body = part("name=\"file\"; filename=\"" + at("x/a.txt") + "\"", "A") +
                           part("name=\"other\"; filename=\"ignored\"", "no") +
                           part("name=\"file\"; filename=\"" + at("y/b.txt") + "\"", "B\r\n") +
                           "--XX--\r\n";
  const Answer up = post_parts("/files", body);
  EXPECT_EQ(up.head.status, 200);
  EXPECT_EQ(up.body, "[" + info("x/a.txt") + "," + info("y/b.txt") + "]");
  EXPECT_EQ(read_text(at("x/a.txt")), "A");
  EXPECT_EQ(read_text(at("y/b.txt")), "B\r\n");
  // With a path in the query the name in the part does not count, and need not be there.
  const Answer named =
      post_parts(target("p"), part("name=\"file\"; filename=\"/q\"", "P") + "--XX--");
  EXPECT_EQ(named.body, "[" + info("p") + "]");
  const Answer bare = post_parts(target("s"), part("name=\"file\"", "S") + "--XX--");
  EXPECT_EQ(bare.body, "[" + info("s") + "]");
  EXPECT_EQ(read_text(at("s")), "S");
  EXPECT_EQ(post_parts("/files", part("name=\"other\"", "x") + "--XX--").body, "[]");
}

TEST_F(Files, SamePathTwice) {
  const std::string body = part("name=\"file\"; filename=\"a\"", "first") +
                           part("name=\"file\"; filename=\"b\"", "second") + "--XX--";
  expect_error(post_parts(target("f"), body), 400,
               "you cannot upload multiple files to the same path '" + at("f") +
                   "' in one upload request, only the first specified file was uploaded");
  EXPECT_EQ(read_text(at("f")), "first");
}

TEST_F(Files, UploadFailures) {
  expect_error(server_.request("POST", target("f"), {{"Content-Type", "text/plain"}}, "x"), 400,
               "unsupported content type: text/plain, expected multipart/form-data or "
               "application/octet-stream");
  expect_error(server_.request("POST", target("f"), {}, "x"), 400,
               "unsupported content type: , expected multipart/form-data or "
               "application/octet-stream");
  expect_error(
      server_.request("POST", "/files", {{"Content-Type", "application/octet-stream"}}, "x"), 400,
      "path query parameter is required for raw body upload");
  std::filesystem::create_directories(at("d"));
  expect_error(put("d", "x"), 400, "path is a directory: " + at("d"));
  write_text(at("file"), "");
  expect_error(put("file/below", "x"), 500,
               "error ensuring directories: path is a file: " + at("file"));
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  EXPECT_EQ(put("fifo", "x").head.status, 400);
  EXPECT_EQ(post_parts(target("f"), "no multipart").head.status, 500);
  EXPECT_EQ(server_.request("POST", target("f"), {{"Content-Type", "multipart/form-data"}}, "x")
                .head.status,
            500);
  expect_error(put("f", "x", {{"Content-Encoding", "br"}}), 400,
               "error decompressing request body: unsupported Content-Encoding: br, supported: "
               "[gzip]");
  const Answer corrupt = put("f", "not gzip", {{"Content-Encoding", "gzip"}});
  EXPECT_EQ(corrupt.head.status, 400);
  EXPECT_NE(corrupt.body.find("error decompressing request body: gzip: "), std::string::npos)
      << corrupt.body;
}

TEST_F(Files, DiskFullIs507) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  // /dev/full is no regular file, so the mapping is looked at by itself.
  EXPECT_EQ(rest_status(Error{Errc::internal, ENOSPC, "x"}), 507);
  EXPECT_EQ(rest_status(Error{Errc::internal, EDQUOT, "x"}), 507);
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const auto written = write_file(full.get(), "x");
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(rest_status(written.error()), 507);
}

TEST_F(Files, GzipUploads) {
  EXPECT_EQ(put("raw", gzip("hello"), {{"Content-Encoding", "gzip"}}).head.status, 200);
  EXPECT_EQ(read_text(at("raw")), "hello");
  const std::string body = gzip(part("name=\"file\"; filename=\"x\"", "parts") + "--XX--");
  EXPECT_EQ(post_parts(target("parts"), body, {{"Content-Encoding", "gzip"}}).head.status, 200);
  EXPECT_EQ(read_text(at("parts")), "parts");
}

TEST_F(Files, Metadata) {
  write_text(at("probe"), "");
  if (::setxattr(at("probe").c_str(), "user.probe", "1", 1, 0) != 0) {
    GTEST_SKIP() << "the temporary directory has no user xattrs";
  }
  const Answer up = put(
      "f", "x",
      {{"X-Metadata-Author", "me"}, {"x-metadata-tag", "a b"}, {"X-Metadata-author", "second"}});
  ASSERT_EQ(up.head.status, 200) << up.body;
  const auto body = parse_json(up.body);
  EXPECT_EQ(json::serialize(body->at(0).at("metadata")), R"({"author":"me","tag":"a b"})");
  EXPECT_EQ(read_metadata(at("f")), (Metadata{{"author", "me"}, {"tag", "a b"}}));
  EXPECT_EQ(put("f", "y").body, "[" + info("f") + "]");
  EXPECT_TRUE(read_metadata(at("f")).empty());
  const std::string two = part("name=\"file\"; filename=\"" + at("m1") + "\"", "1") +
                          part("name=\"file\"; filename=\"" + at("m2") + "\"", "2") + "--XX--";
  post_parts("/files", two, {{"X-Metadata-K", "v"}});
  EXPECT_EQ(read_metadata(at("m1")), (Metadata{{"k", "v"}}));
  EXPECT_EQ(read_metadata(at("m2")), (Metadata{{"k", "v"}}));
}

TEST_F(Files, InvalidMetadataWritesNothing) {
  const net::Headers bad[] = {
      {{"X-Metadata-", "empty key"}},
      {{"X-Metadata-" + std::string(247, 'k'), "v"}},
      {{"X-Metadata-k", "gr\xc3\xbc"}},
      {{"X-Metadata-k", std::string(4096, 'v')}},
  };
  for (const net::Headers& headers : bad) {
    const Answer up = put("f", "x", headers);
    EXPECT_EQ(up.head.status, 400);
    EXPECT_NE(up.body.find("\"message\":\"invalid metadata: "), std::string::npos) << up.body;
  }
  EXPECT_NE(::access(at("f").c_str(), F_OK), 0);
  // Exactly at the limit: 9 for the prefix, 1 for the key.
  EXPECT_TRUE(metadata_from_headers(net::Headers{{"X-Metadata-k", std::string(4086, 'v')}}).ok());
  EXPECT_FALSE(metadata_from_headers(net::Headers{{"X-Metadata-k", std::string(4087, 'v')}}).ok());
}

class SignedFiles : public Files {
 protected:
  SignedFiles() {
    InitRequest init;
    init.access_token = kToken;
    server_.state().apply(std::move(init));
    write_text(at("f"), "secret");
  }
  std::string signed_target(FileOperation operation, std::optional<std::int64_t> expiration) {
    const std::string signature = sign({at("f"), operation, "", expiration}, kToken);
    std::string more = "&signature=" + percent_encode(signature);
    if (expiration) more += "&signature_expiration=" + std::to_string(*expiration);
    return target("f", more);
  }
  static constexpr char kToken[] = "token";
};

TEST_F(SignedFiles, TokenOrSignature) {
  expect_error(get("f"), 401, "missing signature query parameter");
  expect_error(get("f", {{"X-Access-Token", "wrong"}}), 401,
               "access token present in header but does not match");
  EXPECT_EQ(get("f", {{"X-Access-Token", kToken}}).body, "secret");
  expect_error(server_.request("GET", target("f", "&signature=v1_x")), 401, "invalid signature");
  EXPECT_EQ(server_.request("GET", signed_target(FileOperation::read, std::nullopt)).body,
            "secret");
  const std::int64_t now = std::time(nullptr);
  EXPECT_EQ(server_.request("GET", signed_target(FileOperation::read, now + 60)).body, "secret");
  const Answer expired = server_.request("GET", signed_target(FileOperation::read, now - 60));
  EXPECT_EQ(expired.head.status, 401);
  EXPECT_EQ(expired.body, "{\"code\":401,\"message\":\"signature is already expired\"}");
  // The right to read is not the right to write.
  EXPECT_EQ(server_
                .request("POST", signed_target(FileOperation::read, std::nullopt),
                         {{"Content-Type", "application/octet-stream"}}, "x")
                .head.status,
            401);
  EXPECT_EQ(server_
                .request("POST", signed_target(FileOperation::write, now + 60),
                         {{"Content-Type", "application/octet-stream"}}, "changed")
                .head.status,
            200);
  EXPECT_EQ(read_text(at("f")), "changed");
  EXPECT_EQ(
      server_.request("GET", target("f", "&signature=x&signature_expiration=soon")).head.status,
      400);
}

class Compose : public Files {
 protected:
  Answer compose(const json::value& request) {
    return server_.request("POST", "/files/compose", {{"Content-Type", "application/json"}},
                           json::serialize(request));
  }
  std::size_t entries() const {
    return std::size_t(std::distance(std::filesystem::directory_iterator(dir_.path()),
                                     std::filesystem::directory_iterator()));
  }
};

TEST_F(Compose, JoinsInOrderAndRemovesTheSources) {
  write_text(at("1"), std::string(5'000'000, 'a'));
  write_text(at("2"), "");
  write_text(at("3"), "end");
  const Answer done =
      compose({{"source_paths", {at("1"), at("2"), at("3")}}, {"destination", at("d/out")}});
  ASSERT_EQ(done.head.status, 200) << done.body;
  const auto body = parse_json(done.body);
  EXPECT_EQ(body->at("path").as_string(), at("d/out"));
  EXPECT_EQ(body->at("name").as_string(), "out");
  EXPECT_EQ(body->at("type").as_string(), "file");
  EXPECT_TRUE(read_text(at("d/out")) == std::string(5'000'000, 'a') + "end");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Compose, Refusals) {
  write_text(at("a"), "x");
  std::filesystem::create_directories(at("dir"));
  ASSERT_EQ(::symlink("a", at("alias").c_str()), 0);
  const auto status = [&](const json::value& request) { return compose(request).head.status; };
  EXPECT_EQ(status({{"source_paths", json::array()}, {"destination", at("o")}}), 400);
  EXPECT_EQ(status({{"destination", at("o")}}), 400);
  EXPECT_EQ(status({{"source_paths", {at("a")}}, {"destination", ""}}), 400);
  EXPECT_EQ(status({{"source_paths", {at("a")}}, {"destination", at("a")}}), 400);
  EXPECT_EQ(status({{"source_paths", {at("alias")}}, {"destination", at("./a")}}), 400);
  EXPECT_EQ(status({{"source_paths", {at("dir")}}, {"destination", at("o")}}), 400);
  EXPECT_EQ(status({{"source_paths", {at("a")}}, {"destination", at("dir")}}), 400);
  EXPECT_EQ(status({{"source_paths", "a"}, {"destination", at("o")}}), 400);
  EXPECT_EQ(status(json::array()), 400);
  EXPECT_EQ(
      status({{"source_paths", {at("a")}}, {"destination", at("o")}, {"username", "no-such-user"}}),
      401);
  expect_error(compose({{"source_paths", {at("a"), at("none")}}, {"destination", at("new/o")}}),
               404, "source file not found: " + at("none"));
  EXPECT_EQ(server_.request("POST", "/files/compose", {}, "{").head.status, 400);
  EXPECT_EQ(
      server_.request("POST", "/files/compose", {}, std::string((1 << 20) + 1, ' ')).head.status,
      413);
  EXPECT_EQ(server_.request("GET", "/files/compose").head.status, 405);
  EXPECT_EQ(entries(), 3U);  // nothing made, nothing removed
  EXPECT_EQ(read_text(at("a")), "x");
}

}  // namespace
}  // namespace atl::agent
