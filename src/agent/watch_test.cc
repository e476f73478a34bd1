#include "agent/watch.h"

#include <gtest/gtest.h>

#include <map>
#include <ostream>

#include "agent/files.h"
#include "agent/testing.h"

namespace atl::agent {

void PrintTo(const WatchEvent& event, std::ostream* out) {
  *out << filesystem::EventType_Name(event.type).substr(11) << " " << event.name;
}

namespace {

using testing::current_user;
using testing::run_task;
using testing::TempDir;
using testing::write_text;

constexpr auto kCreate = filesystem::EVENT_TYPE_CREATE;
constexpr auto kWrite = filesystem::EVENT_TYPE_WRITE;
constexpr auto kRemove = filesystem::EVENT_TYPE_REMOVE;
constexpr auto kRename = filesystem::EVENT_TYPE_RENAME;
constexpr auto kChmod = filesystem::EVENT_TYPE_CHMOD;
using Events = std::vector<WatchEvent>;

std::unique_ptr<Watcher> watch(const std::string& path, WatchDepth depth = WatchDepth::directory) {
  auto watcher = run_task(Watcher::create(path, depth, NetworkMounts::refuse));
  ATOLL_CHECK(watcher.ok());
  return std::move(*watcher);
}

Events drain(Watcher& watcher) {
  const auto drained = watcher.drain();
  EXPECT_TRUE(drained.ok()) << drained.error().message;
  return watcher.take();
}

void upload(const std::string& path, const std::string& text, const User& user) {
  auto file = UploadedFile::open(path, user);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE(file->write(text).ok());
  ASSERT_TRUE(file->finish({}).ok());
}

void make_dir(const std::string& path) { ASSERT_EQ(::mkdir(path.c_str(), 0755), 0); }

TEST(Watch, UploadOfANewFileIsCreateChmodWrite) {
  const TempDir dir;
  auto watcher = watch(dir.path());
  upload(dir / "f", "hello", current_user(dir.path()));
  EXPECT_EQ(drain(*watcher), (Events{{"f", kCreate}, {"f", kChmod}, {"f", kWrite}}));
  EXPECT_TRUE(drain(*watcher).empty());
  // Over an existing file; truncation and data are one WRITE.
  upload(dir / "f", "other", current_user(dir.path()));
  EXPECT_EQ(drain(*watcher), (Events{{"f", kChmod}, {"f", kWrite}}));
}

TEST(Watch, ReadingEarlyDoesNotSplitAnUpload) {
  const TempDir dir;
  auto watcher = watch(dir.path());
  const User user = current_user(dir.path());
  write_text(dir / "f", "before");
  drain(*watcher);
  auto file = UploadedFile::open(dir / "f", user);
  ASSERT_TRUE(watcher->drain().ok());  // as the background task does
  ASSERT_TRUE(file->write("after").ok());
  ASSERT_TRUE(file->finish({}).ok());
  EXPECT_EQ(drain(*watcher), (Events{{"f", kChmod}, {"f", kWrite}}));
}

TEST(Watch, EmptyUploadWritesNothing) {
  const TempDir dir;
  auto watcher = watch(dir.path());
  upload(dir / "f", "", current_user(dir.path()));
  EXPECT_EQ(drain(*watcher), (Events{{"f", kCreate}, {"f", kChmod}}));
}

TEST(Watch, RenameAndRemove) {
  const TempDir dir;
  write_text(dir / "a", "");
  auto watcher = watch(dir.path());
  ASSERT_EQ(::rename((dir / "a").c_str(), (dir / "b").c_str()), 0);
  ASSERT_EQ(::unlink((dir / "b").c_str()), 0);
  EXPECT_EQ(drain(*watcher), (Events{{"a", kRename}, {"b", kCreate}, {"b", kRemove}}));
}

TEST(Watch, TheDirectoryItselfIsADot) {
  const TempDir dir;
  make_dir(dir / "w");
  auto watcher = watch(dir / "w");
  ASSERT_EQ(::chmod((dir / "w").c_str(), 0700), 0);
  EXPECT_EQ(drain(*watcher), (Events{{".", kChmod}}));
  ASSERT_EQ(::rmdir((dir / "w").c_str()), 0);
  EXPECT_EQ(drain(*watcher), (Events{{".", kRemove}}));
  EXPECT_TRUE(drain(*watcher).empty());
}

TEST(Watch, PlainWatchDoesNotLookIntoSubdirectories) {
  const TempDir dir;
  make_dir(dir / "sub");
  auto watcher = watch(dir.path());
  write_text(dir / "sub/f", "x");
  make_dir(dir / "new");
  write_text(dir / "new/f", "x");
  EXPECT_EQ(drain(*watcher), (Events{{"new", kCreate}}));
}

TEST(WatchTree, ExistingSubdirectories) {
  const TempDir dir;
  make_dir(dir / "a");
  make_dir(dir / "a/b");
  auto watcher = watch(dir.path() + "/", WatchDepth::tree);
  EXPECT_EQ(watcher->watch_count(), 3U);
  upload(dir / "a/b/f", "x", current_user(dir.path()));
  const Events events = drain(*watcher);
  EXPECT_EQ(events, (Events{{"a/b/f", kCreate}, {"a/b/f", kChmod}, {"a/b/f", kWrite}}));
  EXPECT_EQ(watcher->path_of(events[0]), dir / "a/b/f");  // the trailing slash is gone
}

TEST(WatchTree, NewDirectoryAndAFileInItBeforeAnybodyLooked) {
  const TempDir dir;
  auto watcher = watch(dir.path(), WatchDepth::tree);
  make_dir(dir / "n");
  upload(dir / "n/f", "x", current_user(dir.path()));
  EXPECT_EQ(drain(*watcher), (Events{{"n", kCreate}, {"n/f", kCreate}, {"n/f", kWrite}}));
}

TEST(WatchTree, NewDirectoryWatchedInTime) {
  const TempDir dir;
  auto watcher = watch(dir.path(), WatchDepth::tree);
  make_dir(dir / "n");
  EXPECT_EQ(drain(*watcher), (Events{{"n", kCreate}}));
  upload(dir / "n/f", "x", current_user(dir.path()));
  EXPECT_EQ(drain(*watcher), (Events{{"n/f", kCreate}, {"n/f", kChmod}, {"n/f", kWrite}}));
}

TEST(WatchTree, DeepTreeMadeAtOnce) {
  const TempDir dir;
  auto watcher = watch(dir.path(), WatchDepth::tree);
  std::filesystem::create_directories(dir / "a/b/c");
  write_text(dir / "a/b/c/f", "x");
  write_text(dir / "a/empty", "");
  EXPECT_EQ(drain(*watcher), (Events{{"a", kCreate},
                                     {"a/b", kCreate},
                                     {"a/b/c", kCreate},
                                     {"a/b/c/f", kCreate},
                                     {"a/b/c/f", kWrite},
                                     {"a/empty", kCreate}}));
  EXPECT_EQ(watcher->watch_count(), 4U);
  write_text(dir / "a/b/c/g", "");
  EXPECT_EQ(drain(*watcher), (Events{{"a/b/c/g", kCreate}}));
}

// Whatever the timing, every file is reported as created exactly once.
TEST(WatchTree, NoDuplicatesUnderRandomTiming) {
  const TempDir dir;
  auto watcher = watch(dir.path(), WatchDepth::tree);
  std::map<std::string, int> created;
  const auto collect = [&] {
    for (const WatchEvent& event : drain(*watcher)) {
      if (event.type == kCreate) ++created[event.name];
    }
  };
  unsigned seed = 5;
  int files = 0;
  for (int i = 0; i < 50; ++i) {
    std::string path = "d" + std::to_string(i);
    for (int depth = 0; depth < 4; ++depth) {
      make_dir(dir / path);
      ++files;
      if ((seed = seed * 1103515245 + 12345) % 3 == 0) collect();
      write_text(dir / (path + "/f"), "x");
      ++files;
      if ((seed = seed * 1103515245 + 12345) % 4 == 0) collect();
      path += "/s";
    }
  }
  collect();
  EXPECT_EQ(int(created.size()), files);
  for (const auto& [name, count] : created) EXPECT_EQ(count, 1) << name;
}

TEST(WatchTree, RenamedDirectoryKeepsItsWatches) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "a/x");
  auto watcher = watch(dir.path(), WatchDepth::tree);
  ASSERT_EQ(::rename((dir / "a").c_str(), (dir / "b").c_str()), 0);
  EXPECT_EQ(drain(*watcher), (Events{{"a", kRename}, {"b", kCreate}}));
  write_text(dir / "b/x/f", "");
  EXPECT_EQ(drain(*watcher), (Events{{"b/x/f", kCreate}}));
  EXPECT_EQ(watcher->watch_count(), 3U);
}

TEST(WatchTree, DirectoryThatLeavesIsForgotten) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "w/a/x");
  auto watcher = watch(dir / "w", WatchDepth::tree);
  ASSERT_EQ(::rename((dir / "w/a").c_str(), (dir / "out").c_str()), 0);
  EXPECT_EQ(drain(*watcher), (Events{{"a", kRename}}));
  write_text(dir / "out/x/f", "");
  EXPECT_TRUE(drain(*watcher).empty());
  write_text(dir / "w/g", "");
  EXPECT_EQ(drain(*watcher), (Events{{"g", kCreate}}));
  EXPECT_EQ(watcher->watch_count(), 1U);
}

TEST(WatchTree, DirectoryThatComesInIsWatchedButItsContentsAreNotNew) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "w");
  std::filesystem::create_directories(dir / "in/x");
  write_text(dir / "in/x/f", "x");
  auto watcher = watch(dir / "w", WatchDepth::tree);
  ASSERT_EQ(::rename((dir / "in").c_str(), (dir / "w/in").c_str()), 0);
  EXPECT_EQ(drain(*watcher), (Events{{"in", kCreate}}));
  write_text(dir / "w/in/x/g", "");
  EXPECT_EQ(drain(*watcher), (Events{{"in/x/g", kCreate}}));
}

TEST(WatchTree, RemovedDirectoryIsReportedOnce) {
  const TempDir dir;
  make_dir(dir / "a");
  auto watcher = watch(dir.path(), WatchDepth::tree);
  ASSERT_EQ(::rmdir((dir / "a").c_str()), 0);
  EXPECT_EQ(drain(*watcher), (Events{{"a", kRemove}}));
  EXPECT_EQ(watcher->watch_count(), 1U);
}

TEST(WatchTree, LinksAreNotEntered) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "outside");
  std::filesystem::create_directories(dir / "w");
  ASSERT_EQ(::symlink("../outside", (dir / "w/link").c_str()), 0);
  auto watcher = watch(dir / "w", WatchDepth::tree);
  write_text(dir / "outside/f", "x");
  EXPECT_TRUE(drain(*watcher).empty());
  // But the watched path may be one.
  ASSERT_EQ(::symlink("outside", (dir / "watched").c_str()), 0);
  auto through = watch(dir / "watched");
  write_text(dir / "outside/g", "");
  EXPECT_EQ(drain(*through), (Events{{"g", kCreate}}));
}

TEST(Watch, Preconditions) {
  const TempDir dir;
  write_text(dir / "f", "");
  const auto code = [](const std::string& path) {
    const auto made = run_task(Watcher::create(path, WatchDepth::directory, NetworkMounts::refuse));
    EXPECT_FALSE(made.ok());
    return std::pair(made.error().code, made.error().message);
  };
  EXPECT_EQ(code(dir / "none").first, Errc::not_found);
  EXPECT_TRUE(code(dir / "none").second.starts_with("path " + (dir / "none") + " not found: "));
  EXPECT_EQ(code(dir / "f"),
            std::pair(Errc::invalid_argument, "path " + (dir / "f") + " not a directory"));
}

TEST(Watch, BufferThatNobodyTakesIsBounded) {
  const TempDir dir;
  auto watcher = watch(dir.path());
  Result<void> drained;
  const std::string a = dir / "a";
  const std::string b = dir / "b";
  write_text(a, "");
  for (int i = 0; drained.ok() && i < 200'000; ++i) {
    ASSERT_EQ(::rename((i % 2 == 0 ? a : b).c_str(), (i % 2 == 0 ? b : a).c_str()), 0);
    if (i % 1000 == 0) drained = watcher->drain();
  }
  ASSERT_FALSE(drained.ok());
  EXPECT_EQ(drained.error().code, Errc::internal);
  EXPECT_FALSE(watcher->drain().ok());  // for good
}

TEST(Watch, KernelQueueOverflowIsAnError) {
  const TempDir dir;
  std::ifstream limit_file("/proc/sys/fs/inotify/max_queued_events");
  int limit = 0;
  if (!(limit_file >> limit) || limit > 200'000)
    GTEST_SKIP() << "the queue of this kernel is too long";
  auto watcher = watch(dir.path());
  const std::string a = dir / "a";
  const std::string b = dir / "b";
  write_text(a, "");
  for (int i = 0; i < limit; ++i) {
    ASSERT_EQ(::rename((i % 2 == 0 ? a : b).c_str(), (i % 2 == 0 ? b : a).c_str()), 0);
  }
  const auto drained = watcher->drain();
  ASSERT_FALSE(drained.ok());
  EXPECT_EQ(drained.error().code, Errc::internal);
}

}  // namespace
}  // namespace atl::agent
