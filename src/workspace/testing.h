// A store that fails, or does something meanwhile, when a test wants it to. Only tests use it.
#pragma once

#include <atomic>
#include <functional>

#include "store/blobs/blob_store.h"

namespace atl::workspace::testing {

class TrickyStore final : public blobs::BlobStore {
 public:
  // It outlives this one.
  explicit TrickyStore(blobs::BlobStore& real) : real_(real) {}
  // Of the key, when it is kept and before the answer; an error is the answer. Set between calls.
  std::function<net::Task<Result<void>>(std::string)> after_put;
  std::atomic<bool> keeps_all = false;  // removals fail

  net::Task<Result<std::uint64_t>> put(std::string key, blobs::Source source) override {
    auto putting = real_.put(key, std::move(source));
    auto done = co_await std::move(putting);
    if (!done.ok() || !after_put) co_return done;
    auto meanwhile = after_put(std::move(key));
    ATOLL_CO_TRY(co_await std::move(meanwhile));
    co_return done;
  }
  net::Task<Result<std::unique_ptr<blobs::Reader>>> get(std::string key) override {
    return real_.get(std::move(key));
  }
  net::Task<Result<blobs::Blob>> stat(std::string key) override {
    return real_.stat(std::move(key));
  }
  net::Task<Result<blobs::Page>> list(std::string prefix, std::string after,
                                      std::size_t limit) override {
    return real_.list(std::move(prefix), std::move(after), limit);
  }
  net::Task<Result<void>> remove(std::string key) override {
    if (keeps_all) co_return gone();
    auto removing = real_.remove(std::move(key));
    co_return co_await std::move(removing);
  }
  net::Task<Result<void>> clean_up(std::function<bool(std::string_view)> mine) override {
    return real_.clean_up(std::move(mine));
  }
  bool shared() const override { return real_.shared(); }
  std::string describe() const override { return real_.describe(); }

  static Error gone() { return make_error(Errc::unavailable, "the answer was lost"); }

 private:
  blobs::BlobStore& real_;
};

}  // namespace atl::workspace::testing
