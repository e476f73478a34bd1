// What every BlobStore promises, as cases that each backend's test runs. Only tests use it.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_future.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "store/blobs/blob_store.h"

namespace atl::blobs::testing {

// Coroutines on a strand of a thread of its own.
class Runner {
 public:
  Runner() : work_(net::asio::make_work_guard(io_)), thread_([this] { io_.run(); }) {}
  ~Runner() {
    work_.reset();
    thread_.join();
  }
  template <class T>
  T run(net::Task<T> task) {
    auto kept = std::make_shared<std::optional<T>>();
    net::asio::co_spawn(net::asio::make_strand(io_), keep(std::move(task), kept),
                        net::asio::use_future)
        .get();
    return std::move(**kept);
  }

 private:
  template <class T>
  static net::Task<void> keep(net::Task<T> task, std::shared_ptr<std::optional<T>> into) {
    into->emplace(co_await std::move(task));
  }
  net::asio::io_context io_;
  net::asio::executor_work_guard<net::asio::io_context::executor_type> work_;
  std::thread thread_;
};

// `length` bytes of a pattern that depends on the place, in pieces of odd sizes; then an error, if
// one is given.
struct Pattern {
  std::uint64_t length = 0;
  std::optional<Error> error;
  std::uint64_t at = 0;
};
inline char pattern_at(std::uint64_t place) { return char((place * 131 + (place >> 12)) & 0xff); }
inline net::Task<Result<std::size_t>> read_pattern(std::shared_ptr<Pattern> pattern,
                                                   std::span<char> into) {
  const std::size_t count =
      std::min<std::uint64_t>({into.size(), 70'001, pattern->length - pattern->at});
  if (count == 0 && pattern->error) co_return *pattern->error;
  for (std::size_t i = 0; i < count; ++i) into[i] = pattern_at(pattern->at + i);
  pattern->at += count;
  co_return count;
}
inline Source pattern_source(std::uint64_t length, std::optional<Error> error = std::nullopt) {
  auto pattern = std::make_shared<Pattern>(Pattern{length, std::move(error)});
  return [pattern](std::span<char> into) { return read_pattern(pattern, into); };
}
// How many bytes come; data_loss when one is wrong.
inline net::Task<Result<std::uint64_t>> check_pattern(BlobStore& store, std::string key) {
  auto opening = store.get(std::move(key));
  ATOLL_CO_TRY_ASSIGN(auto reader, co_await std::move(opening));
  std::vector<char> buffer(100'003);
  std::uint64_t at = 0;
  for (;;) {
    auto reading = reader->read_some(buffer);
    ATOLL_CO_TRY_ASSIGN(const std::size_t count, co_await std::move(reading));
    if (count == 0) break;
    for (std::size_t i = 0; i < count; ++i) {
      if (buffer[i] != pattern_at(at + i)) co_return make_error(Errc::data_loss, "a wrong byte");
    }
    at += count;
  }
  if (at != reader->size()) co_return make_error(Errc::data_loss, "another size than it said");
  co_return at;
}

// A backend's test derives from it and sets `store`, empty at first.
class Conformance : public ::testing::Test {
 protected:
  std::vector<std::string> keys(const std::string& prefix, const std::string& after = {},
                                std::size_t limit = 1000, bool* more = nullptr) {
    auto page = runner.run(store->list(prefix, after, limit));
    EXPECT_TRUE(page.ok()) << (page.ok() ? "" : page.error().message);
    std::vector<std::string> out;
    if (!page.ok()) return out;
    for (const Blob& blob : page->items) out.push_back(blob.key);
    if (more != nullptr) *more = page->more;
    return out;
  }
  void put(const std::string& key, const std::string& text) {
    auto done = runner.run(store->put_text(key, text));
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  std::string get(const std::string& key) {
    auto text = runner.run(store->get_text(key, 1 << 20));
    return text.ok() ? *text : "error: " + text.error().message;
  }

  void put_and_get();
  void sizes();
  void failed_put_leaves_what_was_there();
  void lists();
  void pages();
  void removes();
  void bad_keys();
  void at_the_same_time();

  Runner runner;
  std::unique_ptr<BlobStore> store;
};

inline void Conformance::put_and_get() {
  EXPECT_EQ(runner.run(store->get("a/b")).error().code, Errc::not_found);
  EXPECT_EQ(runner.run(store->stat("a/b")).error().code, Errc::not_found);
  put("a/b", "first");
  EXPECT_EQ(get("a/b"), "first");
  put("a/b", "second, longer");
  EXPECT_EQ(get("a/b"), "second, longer");
  EXPECT_EQ(runner.run(store->stat("a/b"))->size, 14u);
  put("a/empty", "");
  EXPECT_EQ(get("a/empty"), "");
  put("a/über=20=2F報告@1", "names");
  EXPECT_EQ(get("a/über=20=2F報告@1"), "names");
  EXPECT_EQ(runner.run(store->get_text("a/b", 3)).error().code, Errc::resource_exhausted);
}

inline void Conformance::sizes() {
  // Around the sizes of buffers and parts, and several parts.
  for (const std::uint64_t size :
       {std::uint64_t(1), std::uint64_t(16 << 10), std::uint64_t((16 << 10) + 1),
        std::uint64_t((8 << 20) - 1), std::uint64_t(8 << 20), std::uint64_t((8 << 20) + 1),
        std::uint64_t(21'000'000)}) {
    auto put = runner.run(store->put("s/x", pattern_source(size)));
    ASSERT_TRUE(put.ok()) << put.error().message;
    EXPECT_EQ(*put, size);
    auto got = runner.run(check_pattern(*store, "s/x"));
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(*got, size);
  }
}

inline void Conformance::failed_put_leaves_what_was_there() {
  const Error broken = make_error(Errc::aborted, "the client went away");
  put("f/old", "old");
  for (const std::uint64_t size :
       {std::uint64_t(0), std::uint64_t(5000), std::uint64_t(9 << 20), std::uint64_t(20 << 20)}) {
    auto done = runner.run(store->put("f/old", pattern_source(size, broken)));
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, Errc::aborted);
    EXPECT_EQ(done.error().message, "the client went away");
    EXPECT_FALSE(runner.run(store->put("f/new", pattern_source(size, broken))).ok());
  }
  EXPECT_EQ(get("f/old"), "old");
  EXPECT_EQ(keys("f/"), std::vector<std::string>{"f/old"});
}

inline void Conformance::lists() {
  // '-' and '.' are before '/', '=' and '@' and letters behind.
  const std::vector<std::string> ordered = {"l/a-b",    "l/a.b",   "l/a/1/@v", "l/a/@v1", "l/a/@v2",
                                            "l/a/b/@v", "l/a=20b", "l/a@",     "l/ab",    "l/é"};
  for (auto key = ordered.rbegin(); key != ordered.rend(); ++key) put(*key, "x");
  auto all = keys("l/");
  const auto first = std::find(all.begin(), all.end(), ordered[2]);
  ASSERT_LE(first - all.begin(), std::ptrdiff_t(all.size()) - 4);
  EXPECT_EQ(std::vector<std::string>(first, first + 4),
            std::vector<std::string>(ordered.begin() + 2, ordered.begin() + 6));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, ordered);
  EXPECT_EQ(keys("l/a/"), std::vector<std::string>(ordered.begin() + 2, ordered.begin() + 6));
  EXPECT_EQ(keys("l/a/@"), std::vector<std::string>(ordered.begin() + 3, ordered.begin() + 5));
  EXPECT_EQ(keys("l/a/", "l/a/@v1"),
            std::vector<std::string>(ordered.begin() + 4, ordered.begin() + 6));
  EXPECT_EQ(keys("l/a/", "l/a/@~"),
            std::vector<std::string>(ordered.begin() + 5, ordered.begin() + 6));
  EXPECT_EQ(keys("l/nothing/"), std::vector<std::string>{});
  EXPECT_EQ(keys("nothing"), std::vector<std::string>{});
}

inline void Conformance::pages() {
  std::vector<std::string> all;
  for (int i = 0; i < 23; ++i) {
    all.push_back("p/" + std::string(1, char('a' + i / 5)) + "/" + std::to_string(100 + i));
    put(all.back(), "x");
  }
  std::vector<std::string> seen;
  bool more = true;
  while (more) {
    const auto page = keys("p/", seen.empty() ? "" : seen.back(), 7, &more);
    ASSERT_LE(page.size(), 7u);
    ASSERT_FALSE(page.empty());
    seen.insert(seen.end(), page.begin(), page.end());
  }
  EXPECT_EQ(seen, all);
}

inline void Conformance::removes() {
  put("r/a/1", "x");
  put("r/a/2", "y");
  EXPECT_TRUE(runner.run(store->remove("r/a/1")).ok());
  EXPECT_TRUE(runner.run(store->remove("r/a/1")).ok());
  EXPECT_EQ(keys("r/"), std::vector<std::string>{"r/a/2"});
  EXPECT_TRUE(runner.run(store->remove("r/a/2")).ok());
  EXPECT_EQ(keys("r/"), std::vector<std::string>{});
  put("r/a/1", "again");
  EXPECT_EQ(get("r/a/1"), "again");
}

inline void Conformance::bad_keys() {
  for (const char* key : {"", "/a", "../a", "a/../b", "a b", "a//b"}) {
    EXPECT_EQ(runner.run(store->put_text(key, "x")).error().code, Errc::invalid_argument) << key;
    EXPECT_EQ(runner.run(store->get(key)).error().code, Errc::invalid_argument) << key;
    EXPECT_EQ(runner.run(store->remove(key)).error().code, Errc::invalid_argument) << key;
  }
}

inline void Conformance::at_the_same_time() {
  // Puts and removals below one directory, which is taken away and made again and again.
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t, &failures] {
      Runner own;
      for (int i = 0; i < 15; ++i) {
        const std::string key = "t/deep/er/" + std::to_string(t) + "/" + std::to_string(i);
        if (!own.run(store->put_text(key, key)).ok()) ++failures;
        auto text = own.run(store->get_text(key, 100));
        if (!text.ok() || *text != key) ++failures;
        if (!own.run(store->remove(key)).ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(keys("t/"), std::vector<std::string>{});
}

// All cases, for a fixture of the backend.
#define ATOLL_BLOB_CONFORMANCE(Fixture)                                                \
  TEST_F(Fixture, PutAndGet) { put_and_get(); }                                        \
  TEST_F(Fixture, Sizes) { sizes(); }                                                  \
  TEST_F(Fixture, FailedPutLeavesWhatWasThere) { failed_put_leaves_what_was_there(); } \
  TEST_F(Fixture, Lists) { lists(); }                                                  \
  TEST_F(Fixture, Pages) { pages(); }                                                  \
  TEST_F(Fixture, Removes) { removes(); }                                              \
  TEST_F(Fixture, BadKeys) { bad_keys(); }                                             \
  TEST_F(Fixture, AtTheSameTime) { at_the_same_time(); }

}  // namespace atl::blobs::testing
