#include "agent/filesystem.h"

#include <gtest/gtest.h>

#include "agent/agent.h"
#include "agent/filesystem_tree.h"
#include "agent/test_server.h"
#include "base/encoding.h"
#include "base/json.h"
#include "rpc/client.h"

namespace atl::agent {
namespace {

using testing::run_task;
using testing::TempDir;
using testing::TestServer;
using testing::write_text;

std::vector<std::string> list(const std::string& path, std::uint32_t depth) {
  system_users().refresh();
  filesystem::ListDirResponse out;
  const auto listed = run_task(list_tree(path, depth, system_users(), out));
  EXPECT_TRUE(listed.ok()) << listed.error().message;
  std::vector<std::string> paths;
  for (const auto& entry : out.entries()) paths.push_back(entry.path());
  return paths;
}

TEST(ListTree, OrderAndDepth) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "subdir1/subsubdir1");
  std::filesystem::create_directories(dir / "subdir1/subsubdir2");
  std::filesystem::create_directories(dir / "subdir2");
  write_text(dir / "file1.txt", "");
  write_text(dir / "subdir2/a", "");
  write_text(dir / "subdir1/subsubdir1/z", "");
  write_text(dir / "Z", "");
  const std::string d = dir.path() + "/";
  EXPECT_EQ(list(dir.path(), 1),
            (std::vector<std::string>{d + "Z", d + "file1.txt", d + "subdir1", d + "subdir2"}));
  EXPECT_EQ(list(d, 2), (std::vector<std::string>{
                            d + "Z", d + "file1.txt", d + "subdir1", d + "subdir1/subsubdir1",
                            d + "subdir1/subsubdir2", d + "subdir2", d + "subdir2/a"}));
  EXPECT_EQ(list(d, 4'000'000'000U).size(), 8U);
}

TEST(ListTree, LinksAndOddNames) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "real/inner");
  ASSERT_EQ(::symlink("real", (dir / "link").c_str()), 0);
  write_text(dir / "real/bad\xff", "");
  const std::string l = dir / "link";
  EXPECT_EQ(list(l, 1), (std::vector<std::string>{l + "/bad\xEF\xBF\xBD", l + "/inner"}));
  EXPECT_EQ(list(dir.path(), 3).size(), 4U);  // the link is listed, not entered
}

TEST(ListTree, Failures) {
  const TempDir dir;
  write_text(dir / "f", "");
  ASSERT_EQ(::symlink("cycle", (dir / "cycle").c_str()), 0);
  const auto code = [&](const std::string& name) {
    filesystem::ListDirResponse out;
    return run_task(list_tree(dir / name, 1, system_users(), out)).error();
  };
  EXPECT_EQ(code("none").code, Errc::not_found);
  EXPECT_TRUE(code("none").message.starts_with("path not found: "));
  EXPECT_EQ(code("f").code, Errc::invalid_argument);
  EXPECT_EQ(code("f").message, "path is not a directory: " + (dir / "f"));
  EXPECT_EQ(code("cycle").code, Errc::failed_precondition);
  EXPECT_EQ(code("cycle").message,
            "cyclic symlink or chain >255 links at \"" + (dir / "cycle") + "\"");
}

bool exists(const std::string& path) {
  struct stat st{};
  return ::lstat(path.c_str(), &st) == 0;
}

TEST(RemoveTree, FilesLinksAndMissingPaths) {
  const TempDir dir;
  write_text(dir / "f", "");
  std::filesystem::create_directories(dir / "d");
  write_text(dir / "d/keep", "");
  ASSERT_EQ(::symlink("d", (dir / "link").c_str()), 0);
  ASSERT_TRUE(run_task(remove_tree(dir / "f")).ok());
  ASSERT_TRUE(run_task(remove_tree(dir / "link/")).ok());
  ASSERT_TRUE(run_task(remove_tree(dir / "none/none")).ok());
  EXPECT_FALSE(exists(dir / "f"));
  EXPECT_FALSE(exists(dir / "link"));
  EXPECT_TRUE(exists(dir / "d/keep"));
}

TEST(RemoveTree, WideAndDeep) {
  const TempDir dir;
  for (int i = 0; i < 2500; ++i) write_text(dir / ("t" + std::to_string(i)), "");
  std::string path = dir / "wide";
  for (int i = 0; i < 40; ++i) {
    std::filesystem::create_directories(path + "/d" + std::to_string(i) + "/x");
    write_text(path + "/d" + std::to_string(i) + "/x/f", "");
  }
  // Deeper than any path may be long, and than descriptors are kept.
  Fd at(::open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string name(100, 'n');
  for (int i = 0; i < 120; ++i) {
    ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0755), 0);
    at = Fd(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(bool(at));
  }
  at.reset();
  const auto removed = run_task(remove_tree(dir.path()));
  ASSERT_TRUE(removed.ok()) << removed.error().message;
  EXPECT_FALSE(exists(dir.path()));
}

TEST(RemoveTree, GoesOnAfterAFailure) {
  if (::geteuid() == 0) GTEST_SKIP() << "root can remove everything";
  const TempDir dir;
  std::filesystem::create_directories(dir / "t/locked/inner");
  write_text(dir / "t/a", "");
  write_text(dir / "t/z", "");
  ASSERT_EQ(::chmod((dir / "t/locked").c_str(), 0500), 0);
  const auto removed = run_task(remove_tree(dir / "t"));
  ASSERT_FALSE(removed.ok());
  EXPECT_EQ(removed.error().code, Errc::internal);
  EXPECT_FALSE(exists(dir / "t/a"));
  EXPECT_FALSE(exists(dir / "t/z"));
  ASSERT_EQ(::chmod((dir / "t/locked").c_str(), 0700), 0);
}

TEST(RemoveTree, TheRootIsRefused) {
  for (const char* path : {"/", "//", "/tmp/.."}) {
    const auto removed = run_task(remove_tree(path));
    ASSERT_FALSE(removed.ok());
    EXPECT_EQ(removed.error().code, Errc::internal);
  }
}

// ---- the service over HTTP, as an SDK calls it ----

class FilesystemRpc : public ::testing::Test {
 protected:
  struct Answer {
    int status;
    json::value body;
    std::string code() const { return std::string(body.at("code").as_string()); }
    std::string message() const { return std::string(body.at("message").as_string()); }
    std::string entry(const char* field) const {
      return std::string(body.at("entry").at(field).as_string());
    }
  };
  Answer call(const std::string& method, const json::value& request) {
    const auto answer =
        server_.request("POST", "/filesystem.Filesystem/" + method,
                        {{"Content-Type", "application/json"}, {"Connect-Protocol-Version", "1"}},
                        json::serialize(request));
    auto body = parse_json(answer.body);
    EXPECT_TRUE(body.ok()) << answer.body;
    return {answer.head.status, std::move(*body)};
  }
  std::string at(const std::string& name) const { return dir_ / name; }

  TempDir dir_;
  TestServer server_;
};

TEST_F(FilesystemRpc, StatAndItsErrors) {
  write_text(at("f"), "abc");
  const Answer found = call("Stat", {{"path", at("f")}});
  ASSERT_EQ(found.status, 200);
  EXPECT_EQ(found.entry("name"), "f");
  EXPECT_EQ(found.entry("type"), "FILE_TYPE_FILE");
  EXPECT_EQ(found.entry("size"), "3");
  EXPECT_EQ(found.entry("path"), at("f"));
  const Answer missing = call("Stat", {{"path", at("none")}});
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.code(), "not_found");
  EXPECT_EQ(missing.message(),
            "file not found: lstat " + at("none") + ": no such file or directory");
  const Answer below = call("Stat", {{"path", at("f/x")}});
  EXPECT_EQ(below.code(), "internal");
  EXPECT_TRUE(below.message().starts_with("error getting file info: "));
  EXPECT_EQ(call("Stat", {{"path", "~nobody-at-all/x"}}).code(), "invalid_argument");
}

TEST_F(FilesystemRpc, MakeDir) {
  EXPECT_EQ(call("MakeDir", {{"path", at("a/b/c")}}).entry("type"), "FILE_TYPE_DIRECTORY");
  const Answer again = call("MakeDir", {{"path", at("a/b/c")}});
  EXPECT_EQ(again.status, 409);
  EXPECT_EQ(again.code(), "already_exists");
  EXPECT_EQ(again.message(), "directory already exists: " + at("a/b/c"));
  ASSERT_EQ(::symlink("a", at("link").c_str()), 0);
  EXPECT_EQ(call("MakeDir", {{"path", at("link")}}).code(), "already_exists");
  write_text(at("f"), "");
  const Answer file = call("MakeDir", {{"path", at("f")}});
  EXPECT_EQ(file.code(), "invalid_argument");
  EXPECT_EQ(file.message(), "path already exists but it is not a directory: " + at("f"));
  EXPECT_EQ(call("MakeDir", {{"path", at("f/sub")}}).code(), "internal");
}

TEST_F(FilesystemRpc, Move) {
  write_text(at("f"), "abc");
  write_text(at("old"), "overwritten");
  const Answer moved = call("Move", {{"source", at("f")}, {"destination", at("old")}});
  EXPECT_EQ(moved.entry("path"), at("old"));
  EXPECT_EQ(testing::read_text(at("old")), "abc");
  EXPECT_EQ(call("Move", {{"source", at("old")}, {"destination", at("x/y/f")}}).status, 200);
  EXPECT_TRUE(exists(at("x/y/f")));

  const Answer missing = call("Move", {{"source", at("none")}, {"destination", at("p/q")}});
  EXPECT_EQ(missing.code(), "not_found");
  EXPECT_EQ(missing.message(), "source file not found: rename " + at("none") + " " + at("p/q") +
                                   ": no such file or directory");
  EXPECT_FALSE(exists(at("p")));
  std::filesystem::create_directories(at("empty"));
  const Answer onto = call("Move", {{"source", at("x/y/f")}, {"destination", at("empty")}});
  EXPECT_EQ(onto.code(), "internal");
  EXPECT_EQ(onto.message(),
            "error renaming: rename " + at("x/y/f") + " " + at("empty") + ": file exists");
}

TEST_F(FilesystemRpc, ListAndRemove) {
  std::filesystem::create_directories(at("d/e"));
  const Answer listed = call("ListDir", {{"path", dir_.path()}, {"depth", 0}});
  ASSERT_EQ(listed.body.at("entries").as_array().size(), 1U);
  EXPECT_EQ(call("ListDir", {{"path", at("none")}}).code(), "not_found");
  EXPECT_EQ(call("Remove", {{"path", at("d")}}).status, 200);
  EXPECT_FALSE(exists(at("d")));
  EXPECT_EQ(call("Remove", {{"path", at("d")}}).status, 200);
}

TEST_F(FilesystemRpc, PolledWatcher) {
  std::filesystem::create_directories(at("w"));
  const Answer made =
      call("CreateWatcher", {{"path", at("w")}, {"recursive", true}, {"includeEntry", true}});
  ASSERT_EQ(made.status, 200);
  const std::string id(made.body.at("watcherId").as_string());
  ASSERT_EQ(id[0], 'w');
  const json::value poll = {{"watcherId", id}};
  EXPECT_FALSE(call("GetWatcherEvents", poll).body.as_object().contains("events"));
  // Over HTTP, as an SDK does: exactly three events on the first poll right after the write.
  const auto written = server_.request("POST", "/files?path=" + percent_encode(at("w/f")),
                                       {{"Content-Type", "application/octet-stream"}}, "hello");
  ASSERT_EQ(written.head.status, 200) << written.body;
  const Answer polled = call("GetWatcherEvents", poll);
  const json::array& events = polled.body.at("events").as_array();
  ASSERT_EQ(events.size(), 3U) << json::serialize(polled.body);
  const char* types[] = {"EVENT_TYPE_CREATE", "EVENT_TYPE_CHMOD", "EVENT_TYPE_WRITE"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].at("type").as_string(), types[i]);
    EXPECT_EQ(events[i].at("name").as_string(), "f");
    EXPECT_EQ(events[i].at("entry").at("path").as_string(), at("w/f"));
  }
  call("MakeDir", {{"path", at("w/n")}});
  server_.request("POST", "/files?path=" + percent_encode(at("w/n/g")),
                  {{"Content-Type", "application/octet-stream"}}, "x");
  const std::string text = json::serialize(call("GetWatcherEvents", poll).body);
  EXPECT_NE(text.find("\"name\":\"n\",\"type\":\"EVENT_TYPE_CREATE\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"name\":\"n/g\",\"type\":\"EVENT_TYPE_WRITE\""), std::string::npos) << text;
  call("Remove", {{"path", at("w/f")}});
  const Answer removed = call("GetWatcherEvents", poll);
  ASSERT_EQ(removed.body.at("events").as_array().size(), 1U);
  EXPECT_FALSE(removed.body.at("events").as_array()[0].as_object().contains("entry"));

  EXPECT_EQ(call("RemoveWatcher", poll).status, 200);
  const Answer gone = call("GetWatcherEvents", poll);
  EXPECT_EQ(gone.status, 404);
  EXPECT_EQ(gone.message(), "watcher with id " + id + " not found");
  EXPECT_EQ(call("RemoveWatcher", poll).code(), "not_found");
}

TEST_F(FilesystemRpc, WatcherPreconditions) {
  write_text(at("f"), "");
  EXPECT_EQ(call("CreateWatcher", {{"path", at("none")}}).code(), "not_found");
  EXPECT_EQ(call("CreateWatcher", {{"path", at("f")}}).code(), "invalid_argument");
}

// ---- the watch stream ----

int open_inotify_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own descriptor
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && target.find("inotify") != std::string::npos) ++count;
  }
  return count;
}

struct Watched {
  std::vector<filesystem::WatchDirResponse> messages;
  int descriptors = 0;  // while the stream was open
  Error end;
};

// Opens the stream, writes a file once it has started, and reads until `enough` messages came or it
// ended; then leaves.
net::Task<Result<Watched>> watch_and_write(std::uint16_t port, filesystem::WatchDirRequest request,
                                           rpc::CallOptions options, std::string file,
                                           std::size_t enough) {
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await net::connect_tcp("127.0.0.1", port));
  net::HttpClient client(std::move(stream));
  const std::string path = "/filesystem.Filesystem/WatchDir";
  ATOLL_CO_TRY_ASSIGN(auto watch,
                      co_await rpc::ServerStream::open(client, path, request, std::move(options)));
  Watched watched;
  while (watched.messages.size() < enough) {
    filesystem::WatchDirResponse message;
    auto more = co_await watch.next(message);
    if (!more.ok()) {
      watched.end = std::move(more).error();
      break;
    }
    if (!*more) break;
    watched.messages.push_back(message);
    watched.descriptors = open_inotify_descriptors();
    if (message.has_start()) write_text(file, "x");
  }
  co_return watched;
}

TEST_F(FilesystemRpc, WatchStreamStartsThenTellsAndEndsWithItsClient) {
  filesystem::WatchDirRequest request;
  request.set_path(dir_.path());
  request.set_include_entry(true);
  const auto watched = server_.run(watch_and_write(server_.port(), request, {}, at("f"), 3));
  ASSERT_TRUE(watched.ok()) << watched.error().message;
  ASSERT_EQ(watched->messages.size(), 3U);
  EXPECT_TRUE(watched->messages[0].has_start());
  EXPECT_EQ(watched->messages[1].filesystem().type(), filesystem::EVENT_TYPE_CREATE);
  EXPECT_EQ(watched->messages[2].filesystem().type(), filesystem::EVENT_TYPE_WRITE);
  EXPECT_EQ(watched->messages[2].filesystem().entry().path(), at("f"));
  EXPECT_EQ(watched->descriptors, 1);
  // Any further request lets the loop run until the server has seen that the client is gone.
  for (int i = 0; i < 100 && open_inotify_descriptors() > 0; ++i) call("Stat", {{"path", at("f")}});
  EXPECT_EQ(open_inotify_descriptors(), 0);
}

TEST_F(FilesystemRpc, WatchStreamKeepsAliveUntilItsDeadline) {
  filesystem::WatchDirRequest request;
  request.set_path(dir_.path());
  rpc::CallOptions options;
  options.headers.add("Keepalive-Ping-Interval", "1");
  options.timeout = std::chrono::milliseconds(1500);
  const auto watched =
      server_.run(watch_and_write(server_.port(), request, std::move(options), at("f"), 100));
  ASSERT_TRUE(watched.ok()) << watched.error().message;
  ASSERT_FALSE(watched->messages.empty());
  EXPECT_TRUE(watched->messages.back().has_keepalive());
  EXPECT_EQ(watched->end.code, Errc::deadline_exceeded);
  EXPECT_EQ(open_inotify_descriptors(), 0);
}

}  // namespace
}  // namespace atl::agent
