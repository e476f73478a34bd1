#include "agent/gzip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "agent/testing.h"

namespace atl::agent {
namespace {

std::string compress(std::string_view in, std::size_t out_bytes = 1024) {
  auto encoder = GzipEncoder::create(6);
  std::string packed;
  std::vector<char> out(out_bytes);
  while (!in.empty()) {
    std::string_view piece = in.substr(0, 777);
    in.remove_prefix(piece.size());
    while (!piece.empty()) packed.append(out.data(), *encoder->encode(piece, out));
  }
  while (const std::size_t n = *encoder->finish(out)) packed.append(out.data(), n);
  return packed;
}

// Feeds `step` bytes at a time into an output of `room` bytes.
Result<std::string> decompress(std::string_view packed, std::size_t step, std::size_t room) {
  ATOLL_TRY_ASSIGN(GzipDecoder decoder, GzipDecoder::create());
  std::string plain;
  std::vector<char> out(room);
  while (!packed.empty()) {
    std::string_view piece = packed.substr(0, step);
    packed.remove_prefix(piece.size());
    while (true) {
      const std::size_t before = piece.size();
      ATOLL_TRY_ASSIGN(std::size_t n, decoder.decode(piece, out));
      plain.append(out.data(), n);
      if (n == 0 && (piece.empty() || piece.size() == before)) break;
    }
  }
  if (!decoder.complete()) return make_error(Errc::invalid_argument, "incomplete");
  return plain;
}

std::string sample(std::size_t size) {
  std::mt19937 random(7);
  std::string text(size, '\0');
  for (char& c : text) c = char('a' + random() % 6);
  return text;
}

TEST(Gzip, RoundTripsInAnyPieces) {
  for (std::size_t size : {0U, 1U, 100U, 5000U, 300'000U}) {
    const std::string text = sample(size);
    const std::string packed = compress(text, size < 1000 ? 1 : 4096);
    for (std::size_t step : {std::size_t(1), std::size_t(100), packed.size()}) {
      if (size > 10'000 && step == 1) continue;
      const auto plain = decompress(packed, step, step == 1 ? 1 : 999);
      ASSERT_TRUE(plain.ok()) << plain.error().message;
      EXPECT_EQ(*plain, text);
    }
  }
}

TEST(Gzip, SeveralMembersAreOneFile) {
  const std::string packed = compress("hello ") + compress("") + compress("world");
  for (std::size_t step : {1U, 7U, 1000U}) EXPECT_EQ(*decompress(packed, step, 3), "hello world");
}

TEST(Gzip, CorruptInputIsRefused) {
  const std::string packed = compress(sample(5000));
  EXPECT_FALSE(decompress("plain text, no gzip", 1000, 100).ok());
  EXPECT_FALSE(decompress(packed + "garbage", 1000, 100).ok());
  EXPECT_FALSE(decompress(packed.substr(0, packed.size() - 1), 1000, 100).ok());
  EXPECT_FALSE(decompress(packed.substr(0, 5), 1000, 100).ok());
  EXPECT_FALSE(decompress("", 1000, 100).ok());
  std::string flipped = packed;
  flipped[flipped.size() - 6] ^= 1;  // in the checksum
  EXPECT_FALSE(decompress(flipped, 1000, 100).ok());
}

class TextBody final : public net::BodyReader {
 public:
  TextBody(std::string text, std::size_t step) : text_(std::move(text)), step_(step) {}
  net::Task<Result<std::size_t>> read_some(std::span<char> into) override {
    const std::size_t n = std::min({into.size(), step_, text_.size() - at_});
    std::copy_n(text_.data() + at_, n, into.data());
    at_ += n;
    co_return n;
  }
  std::optional<std::uint64_t> content_length() const override { return text_.size(); }
  bool at_end() const override { return at_ == text_.size(); }

 private:
  std::string text_;
  std::size_t step_;
  std::size_t at_ = 0;
};

TEST(GunzipReader, ReadsTheDecodedBody) {
  const std::string text = sample(200'000);
  for (std::size_t step : {13U, 100'000U}) {
    TextBody packed(compress(text) + compress("tail"), step);
    GunzipReader reader(packed, std::move(*GzipDecoder::create()));
    EXPECT_EQ(*testing::run_task(reader.read_all(1 << 20)), text + "tail");
    EXPECT_TRUE(reader.at_end());
  }
}

TEST(GunzipReader, TruncatedAndForeignBodiesFail) {
  for (const std::string& bytes :
       {compress("hello").substr(0, 10), std::string("hello"), std::string()}) {
    TextBody packed(bytes, 4);
    GunzipReader reader(packed, std::move(*GzipDecoder::create()));
    const auto read = testing::run_task(reader.read_all(1 << 20));
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Errc::invalid_argument);
    EXPECT_TRUE(read.error().message.starts_with("gzip: ")) << read.error().message;
  }
}

}  // namespace
}  // namespace atl::agent
