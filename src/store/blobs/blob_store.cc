#include "store/blobs/blob_store.h"

#include <algorithm>
#include <cstring>

namespace atl::blobs {
namespace {

struct Text {
  std::string bytes;
  std::size_t at = 0;
};

net::Task<Result<std::size_t>> read_text(std::shared_ptr<Text> text, std::span<char> into) {
  const std::size_t count = std::min(into.size(), text->bytes.size() - text->at);
  std::memcpy(into.data(), text->bytes.data() + text->at, count);
  text->at += count;
  co_return count;
}

}  // namespace

Source text_source(std::string text) {
  auto shared = std::make_shared<Text>(Text{std::move(text)});
  return [shared](std::span<char> into) { return read_text(shared, into); };
}

net::Task<Result<std::size_t>> fill(const Source& source, std::span<char> into) {
  std::size_t have = 0;
  while (have < into.size()) {
    auto reading = source(into.subspan(have));
    ATOLL_CO_TRY_ASSIGN(const std::size_t count, co_await std::move(reading));
    if (count == 0) break;
    have += count;
  }
  co_return have;
}

net::Task<Result<void>> BlobStore::put_text(std::string key, std::string text) {
  auto putting = put(std::move(key), text_source(std::move(text)));
  ATOLL_CO_TRY(co_await std::move(putting));
  co_return Result<void>();
}

net::Task<Result<std::string>> BlobStore::get_text(std::string key, std::size_t limit) {
  auto opening = get(std::move(key));
  ATOLL_CO_TRY_ASSIGN(std::unique_ptr<Reader> reader, co_await std::move(opening));
  if (reader->size() > limit)
    co_return make_error(Errc::resource_exhausted, "the blob is longer than it should be");
  std::string out(reader->size(), '\0');
  std::size_t have = 0;
  while (have < out.size()) {
    auto reading = reader->read_some(std::span(out).subspan(have));
    ATOLL_CO_TRY_ASSIGN(const std::size_t count, co_await std::move(reading));
    if (count == 0) co_return make_error(Errc::data_loss, "the blob is shorter than it should be");
    have += count;
  }
  co_return out;
}

}  // namespace atl::blobs
