#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>

#include "base/ids.h"
#include "store/blobs/conformance.h"
#include "store/blobs/directory.h"
#include "workspace/blob_workspaces.h"
#include "workspace/testing.h"

namespace atl::workspace {
namespace {

namespace fs = std::filesystem;
using blobs::testing::pattern_source;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TrickyStore;

net::Task<Result<void>> nothing() { co_return Result<void>(); }
net::Task<Result<void>> fail() { co_return TrickyStore::gone(); }

class WorkspacesTest : public ::testing::Test {
 protected:
  WorkspacesTest() : root(fs::path(::testing::TempDir()) / ("ws-" + random_hex(8))) { reopen(); }
  ~WorkspacesTest() override {
    workspaces.reset();
    store.reset();
    fs::remove_all(root);
  }
  // As after a restart of the server.
  void reopen(const std::string& server = "0123abcd") {
    workspaces.reset();
    store.reset();
    auto opened = blobs::open_directory(root.string());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    store = std::move(*opened);
    workspaces = std::make_unique<BlobWorkspaces>(*store, server, quota);
    ASSERT_TRUE(runner.run(workspaces->start()).ok());
  }
  Result<File> write(const std::string& path, const std::string& text,
                     const std::string& workspace = "w") {
    return runner.run(
        workspaces->write("t", workspace, path, blobs::text_source(text), text.size()));
  }
  Result<std::string> read(const std::string& path, const std::string& version = {}) {
    auto reader = runner.run(workspaces->read("t", "w", path, version));
    if (!reader.ok()) return std::move(reader).error();
    std::string text((*reader)->file().size + 1, '\0');
    auto count = runner.run((*reader)->read_some(text));
    if (!count.ok()) return std::move(count).error();
    text.resize(*count);
    return text;
  }
  std::vector<std::string> paths(const std::string& prefix = "/") {
    auto files = runner.run(workspaces->list("t", "w", prefix));
    EXPECT_TRUE(files.ok());
    std::vector<std::string> out;
    for (const File& file : *files) out.push_back(file.path);
    return out;
  }
  Usage usage() { return runner.run(workspaces->info("t", "w"))->usage; }
  std::size_t contents() { return runner.run(store->list("d/", {}, 10'000))->items.size(); }

  const fs::path root;
  Quota quota{.max_bytes = 1000, .max_files = 5, .keep_versions = 3};
  blobs::testing::Runner runner;
  std::unique_ptr<blobs::BlobStore> store;
  std::unique_ptr<BlobWorkspaces> workspaces;
};

TEST_F(WorkspacesTest, WriteReadAndSurvive) {
  const auto file = write("a/b.txt", "hello");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->path, "/a/b.txt");
  EXPECT_EQ(file->size, 5u);
  EXPECT_EQ(file->sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
  EXPECT_EQ(*read("/a/b.txt"), "hello");
  reopen();
  EXPECT_EQ(*read("/a/b.txt"), "hello");
  EXPECT_EQ(read("/a").error().code, Errc::not_found);
  EXPECT_EQ(read("/a/b").error().code, Errc::not_found);
  ASSERT_TRUE(write("/empty", "").ok());
  EXPECT_EQ(*read("/empty"), "");
}

TEST_F(WorkspacesTest, VersionsAreKeptUpToTheLimit) {
  std::vector<std::string> ids;
  for (const char* text : {"one", "two", "three", "four"})
    ids.push_back(write("/f", text)->version);
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  const auto versions = *runner.run(workspaces->versions("t", "w", "/f"));
  ASSERT_EQ(versions.size(), 3u);
  EXPECT_EQ(versions[0].version, ids[3]);
  EXPECT_EQ(versions[2].version, ids[1]);
  EXPECT_EQ(*read("/f"), "four");
  EXPECT_EQ(*read("/f", ids[1]), "two");
  EXPECT_EQ(read("/f", ids[0]).error().code, Errc::not_found);
  EXPECT_EQ(read("/f", "../x").error().code, Errc::invalid_argument);
  EXPECT_EQ(contents(), 3u);  // what no version names is gone

  const auto restored = runner.run(workspaces->restore("t", "w", "/f", ids[2]));
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  EXPECT_EQ(*read("/f"), "three");
  EXPECT_GT(restored->version, ids[3]);
  EXPECT_EQ(usage().versions, 3u);
  EXPECT_EQ(usage().bytes, 5u + 4u + 5u);
}

TEST_F(WorkspacesTest, ABrokenWriteLeavesTheOldVersion) {
  ASSERT_TRUE(write("/f", "old").ok());
  const auto source = pattern_source(100, make_error(Errc::unavailable, "the client went away"));
  auto broken = runner.run(workspaces->write("t", "w", "/f", source, std::nullopt));
  EXPECT_EQ(broken.error().code, Errc::unavailable);
  EXPECT_EQ(*read("/f"), "old");
  EXPECT_EQ(contents(), 1u);
  EXPECT_EQ(usage().bytes, 3u);
  // Shorter and longer than announced.
  for (const std::uint64_t announced : {5, 50}) {
    auto wrong =
        runner.run(workspaces->write("t", "w", "/f", blobs::text_source("ten bytes!"), announced));
    EXPECT_EQ(wrong.error().code, Errc::invalid_argument);
  }
  EXPECT_EQ(*read("/f"), "old");
  EXPECT_EQ(contents(), 1u);
}

TEST_F(WorkspacesTest, AVersionWhoseAnswerWasLostNamesWhatIsThereOrIsGone) {
  TrickyStore tricky(*store);
  BlobWorkspaces own(tricky, "0123abcd", quota);
  const auto put = [&](const std::string& text) {
    return runner.run(own.write("t", "w", "/f", blobs::text_source(text), text.size()));
  };
  ASSERT_TRUE(put("old").ok());
  tricky.after_put = [](const std::string& key) {
    return key.starts_with("i/") ? fail() : nothing();
  };
  EXPECT_EQ(put("new").error().code, Errc::unavailable);
  EXPECT_EQ(*read("/f"), "old");
  EXPECT_EQ(contents(), 1u);
  // And if it cannot be taken back.
  tricky.keeps_all = true;
  EXPECT_EQ(put("newer").error().code, Errc::unavailable);
  EXPECT_EQ(*read("/f"), "newer");
}

TEST_F(WorkspacesTest, ARemovalSparesWhatIsBeingWritten) {
  TrickyStore tricky(*store);
  BlobWorkspaces own(tricky, "0123abcd", quota);
  ASSERT_TRUE(write("/old", "x").ok());
  tricky.after_put = [&, done = false](const std::string& key) mutable {
    if (!key.starts_with("d/") || std::exchange(done, true)) return nothing();
    return own.remove_workspace("t", "w");
  };
  const auto written = runner.run(own.write("t", "w", "/f", blobs::text_source("new"), 3));
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_THAT(paths(), ElementsAre("/f"));
  EXPECT_EQ(*read("/f"), "new");
  EXPECT_EQ(contents(), 1u);
  EXPECT_EQ(runner.run(own.info("t", "w"))->usage.files, 1u);
}

TEST_F(WorkspacesTest, QuotasOfAnotherServerStay) {
  BlobWorkspaces theirs(*store, "ffffffff", quota);
  EXPECT_EQ(runner.run(theirs.info("t", "w")).error().code, Errc::not_found);
  ASSERT_TRUE(runner.run(workspaces->configure("t", "w", {.max_bytes = 7})).ok());
  ASSERT_TRUE(runner.run(theirs.write("t", "w", "/f", blobs::text_source("x"), 1)).ok());
  EXPECT_EQ(runner.run(theirs.info("t", "w"))->quota.max_bytes, 7u);
  // What is not given stays as the other one has set it.
  ASSERT_TRUE(runner.run(workspaces->configure("t", "w", {.max_bytes = 8})).ok());
  EXPECT_EQ(runner.run(theirs.configure("t", "w", {.max_files = 4}))->quota.max_bytes, 8u);
  reopen();
  const auto kept = runner.run(workspaces->info("t", "w"))->quota;
  EXPECT_EQ(kept, (Quota{.max_bytes = 8, .max_files = 4, .keep_versions = quota.keep_versions}));
}

TEST_F(WorkspacesTest, Quotas) {
  ASSERT_TRUE(write("/a", std::string(600, 'a')).ok());
  auto announced = write("/b", std::string(401, 'b'));
  EXPECT_EQ(announced.error().code, Errc::resource_exhausted);
  EXPECT_EQ(announced.error().sys_errno, ENOSPC);
  auto streamed = runner.run(workspaces->write("t", "w", "/b", pattern_source(401), std::nullopt));
  EXPECT_EQ(streamed.error().sys_errno, ENOSPC);
  EXPECT_EQ(contents(), 1u);
  ASSERT_TRUE(write("/b", std::string(400, 'b')).ok());
  ASSERT_FALSE(write("/a", "x").ok());  // old versions count
  ASSERT_TRUE(runner.run(workspaces->remove("t", "w", "/b")).ok());
  for (const char* path : {"/b", "/c", "/d", "/e"}) ASSERT_TRUE(write(path, "x").ok());
  auto sixth = write("/f", "x");
  EXPECT_EQ(sixth.error().sys_errno, ENOSPC);
  EXPECT_THAT(sixth.error().message, HasSubstr("5 files"));
  ASSERT_TRUE(write("/e", "y").ok());  // another version is no other file
  EXPECT_EQ(usage().files, 5u);
  EXPECT_EQ(usage().bytes, 605u);
  reopen();
  EXPECT_EQ(usage().files, 5u);
  EXPECT_EQ(usage().bytes, 605u);
  EXPECT_EQ(usage().versions, 6u);

  auto raised = runner.run(workspaces->configure("t", "w", {.max_files = 6}));
  EXPECT_EQ(raised->quota.max_bytes, 1000u);
  EXPECT_TRUE(write("/f", "x").ok());
  EXPECT_EQ(runner.run(workspaces->configure("t", "w", {.keep_versions = 0})).error().code,
            Errc::invalid_argument);
}

TEST_F(WorkspacesTest, ListsByFolder) {
  quota = {};
  reopen();
  for (const char* path : {"/a", "/a-b", "/a/1", "/a/b/2", "/a/b/.3", "/ab", "/ü"})
    ASSERT_TRUE(write(path, path).ok());
  ASSERT_TRUE(write("/a/1", "again").ok());
  EXPECT_THAT(paths(), ElementsAre("/a-b", "/a/1", "/a", "/a/b/2", "/a/b/.3", "/ab", "/ü"));
  EXPECT_THAT(paths("/a"), ElementsAre("/a/1", "/a", "/a/b/2", "/a/b/.3"));
  EXPECT_THAT(paths("/a/b/"), ElementsAre("/a/b/2", "/a/b/.3"));
  EXPECT_THAT(paths("/a/1"), ElementsAre("/a/1"));
  EXPECT_THAT(paths("/zzz"), ElementsAre());
  // Page by page, with all versions: a page ends with a file.
  EntryQuery first{.all_versions = true, .limit = 2};
  EXPECT_EQ(runner.run(workspaces->entries("t", "w", first))->items.size(), 3u);
  ASSERT_TRUE(write("/a-b", "again").ok());
  EXPECT_EQ(runner.run(workspaces->entries("t", "w", first))->items.size(), 2u);
  std::vector<std::string> seen;
  EntryQuery query{.all_versions = true, .limit = 2};
  for (int pages = 0; pages < 10; ++pages) {
    auto page = runner.run(workspaces->entries("t", "w", query));
    ASSERT_TRUE(page.ok());
    for (const File& file : page->items) seen.push_back(file.path);
    if (page->next.empty()) break;
    query.after = page->next;
  }
  EXPECT_THAT(seen,
              ElementsAre("/a-b", "/a-b", "/a/1", "/a/1", "/a", "/a/b/2", "/a/b/.3", "/ab", "/ü"));
}

TEST_F(WorkspacesTest, RemovesFilesFoldersAndAll) {
  for (const char* path : {"/a/1", "/a/2", "/b"}) ASSERT_TRUE(write(path, path).ok());
  ASSERT_TRUE(write("/b", "again").ok());
  EXPECT_EQ(runner.run(workspaces->remove("t", "w", "/a")).error().code, Errc::not_found);
  ASSERT_TRUE(runner.run(workspaces->remove("t", "w", "/b")).ok());
  EXPECT_EQ(runner.run(workspaces->remove("t", "w", "/b")).error().code, Errc::not_found);
  EXPECT_EQ(runner.run(workspaces->versions("t", "w", "/b")).error().code, Errc::not_found);
  EXPECT_EQ(*runner.run(workspaces->remove_folder("t", "w", "/a")), 2u);
  EXPECT_EQ(usage().files, 0u);
  EXPECT_EQ(usage().bytes, 0u);
  EXPECT_EQ(contents(), 0u);
  ASSERT_TRUE(write("/c", "x").ok());
  ASSERT_TRUE(runner.run(workspaces->remove_workspace("t", "w")).ok());
  EXPECT_EQ(runner.run(workspaces->info("t", "w")).error().code, Errc::not_found);
  EXPECT_TRUE(fs::is_empty(root / "blobs"));
}

TEST_F(WorkspacesTest, TeamsDoNotSeeEachOther) {
  ASSERT_TRUE(write("/f", "x").ok());
  EXPECT_EQ(runner.run(workspaces->read("other", "w", "/f", {})).error().code, Errc::not_found);
  EXPECT_TRUE(runner.run(workspaces->names("other", {}, 100))->names.empty());
  ASSERT_TRUE(write("/f", "x", "v").ok());
  EXPECT_THAT(runner.run(workspaces->names("t", {}, 100))->names, ElementsAre("v", "w"));
  EXPECT_THAT(runner.run(workspaces->names("t", "v", 100))->names, ElementsAre("w"));
  EXPECT_TRUE(runner.run(workspaces->names("t", {}, 1))->more);
}

TEST_F(WorkspacesTest, TeamsAreKeptByName) {
  const auto named = [](const std::string& id) {
    return id == "id-1" || id == "id-2" ? std::string("people") : id + std::string(100, 'x');
  };
  BlobWorkspaces mine(*store, "0123abcd", quota, named);
  BlobWorkspaces theirs(*store, "ffffffff", quota, named);
  ASSERT_TRUE(runner.run(mine.write("id-1", "w", "/f", blobs::text_source("x"), {})).ok());
  EXPECT_TRUE(runner.run(theirs.read("id-2", "w", "/f", {})).ok());
  EXPECT_THAT(runner.run(theirs.names("id-2", {}, 10))->names, ElementsAre("w"));
  // Long names stay apart.
  ASSERT_TRUE(runner.run(mine.write("a", "w", "/f", blobs::text_source("x"), {})).ok());
  EXPECT_TRUE(runner.run(mine.read("a", "w", "/f", {})).ok());
  EXPECT_FALSE(runner.run(mine.read("b", "w", "/f", {})).ok());
}

TEST_F(WorkspacesTest, SweepRemovesWhatNothingNames) {
  ASSERT_TRUE(write("/f", "x").ok());
  const Place place{"t", "w"};
  const Place gone{"t", "gone"};
  const std::string mine = make_data("0123abcd", now() - std::chrono::hours(1));
  const std::string others = make_data("ffffffff", now() - std::chrono::hours(1));
  const std::string ancient = make_data("ffffffff", now() - std::chrono::hours(24 * 8));
  for (const std::string& data : {mine, others, ancient})
    ASSERT_TRUE(runner.run(store->put_text(place.content(data), "lost")).ok());
  ASSERT_TRUE(runner.run(store->put_text(gone.content(mine), "lost")).ok());
  reopen();
  auto removed = runner.run(workspaces->sweep());
  ASSERT_TRUE(removed.ok()) << removed.error().message;
  EXPECT_EQ(*removed, 3u);
  EXPECT_EQ(contents(), 2u);  // the file's, and the one that another server may be publishing
  EXPECT_EQ(*read("/f"), "x");
}

TEST_F(WorkspacesTest, WritersAtTheSameTime) {
  quota = {.max_bytes = 1 << 20, .max_files = 100, .keep_versions = 5};
  reopen();
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      blobs::testing::Runner own;
      for (int i = 0; i < 5; ++i) {
        const std::string text = std::to_string(t) + "-" + std::to_string(i);
        if (!own.run(workspaces->write("t", "w", "/same", blobs::text_source(text), {})).ok())
          ++failures;
        if (!own.run(workspaces->read("t", "w", "/same", {})).ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(usage().files, 1u);
  EXPECT_EQ(usage().versions, 5u);
  EXPECT_EQ(contents(), 5u);
  const Usage before = usage();
  reopen();
  EXPECT_EQ(usage().bytes, before.bytes);
}

TEST_F(WorkspacesTest, AnotherVersionIsNewerEvenIfTheClockGoesBack) {
  ASSERT_TRUE(write("/f", "x").ok());
  const Place place{"t", "w"};
  Version future;
  future.file = {"/f", 4, make_version(now() + std::chrono::hours(1)), std::string(64, 'a'), {}};
  future.data = make_data("0123abcd", now());
  ASSERT_TRUE(runner.run(store->put_text(place.content(future.data), "soon")).ok());
  ASSERT_TRUE(runner.run(store->put_text(entry_key(place, future), "")).ok());
  EXPECT_EQ(*read("/f"), "soon");
  ASSERT_TRUE(write("/f", "now").ok());
  EXPECT_EQ(*read("/f"), "now");
}

}  // namespace
}  // namespace atl::workspace
