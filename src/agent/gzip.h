// Streaming gzip over zlib: sans-IO encoder and decoder, and a body reader that decodes as it
// reads.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http.h"

struct z_stream_s;

namespace atl::agent {

// Decodes one gzip file, which may be several members in a row (RFC 1952 §2.2).
class GzipDecoder {
 public:
  static Result<GzipDecoder> create();
  GzipDecoder(GzipDecoder&&) noexcept = default;
  GzipDecoder& operator=(GzipDecoder&&) noexcept = default;

  // Takes from the front of `in` and returns how much it put into `out`; 0 = needs more input.
  // Errors: invalid_argument for anything that is not gzip.
  Result<std::size_t> decode(std::string_view& in, std::span<char> out);
  // May the input end here? Only after the checksum of a member.
  bool complete() const { return at_boundary_ && members_ > 0; }

 private:
  struct Close {
    void operator()(z_stream_s* stream) const;
  };
  explicit GzipDecoder(std::unique_ptr<z_stream_s, Close> stream) : stream_(std::move(stream)) {}

  std::unique_ptr<z_stream_s, Close> stream_;
  bool at_boundary_ = true;  // between members
  std::size_t members_ = 0;
};

class GzipEncoder {
 public:
  // 1 (fast) to 9 (small).
  static Result<GzipEncoder> create(int level);
  GzipEncoder(GzipEncoder&&) noexcept = default;
  GzipEncoder& operator=(GzipEncoder&&) noexcept = default;

  // Takes from the front of `in`; returns how much it put into `out`. Call again while `in` has
  // bytes or `out` came back full.
  Result<std::size_t> encode(std::string_view& in, std::span<char> out);
  // After the last `encode`: call until it returns 0.
  Result<std::size_t> finish(std::span<char> out);

 private:
  struct Close {
    void operator()(z_stream_s* stream) const;
  };
  explicit GzipEncoder(std::unique_ptr<z_stream_s, Close> stream) : stream_(std::move(stream)) {}

  std::unique_ptr<z_stream_s, Close> stream_;
  bool done_ = false;
};

// The decoded view of a gzip body. `inner` outlives it. A body that ends inside a member is
// invalid_argument.
class GunzipReader final : public net::BodyReader {
 public:
  GunzipReader(net::BodyReader& inner, GzipDecoder decoder);
  net::Task<Result<std::size_t>> read_some(std::span<char> into) override;
  std::optional<std::uint64_t> content_length() const override { return std::nullopt; }
  bool at_end() const override { return ended_; }

 private:
  net::BodyReader& inner_;
  GzipDecoder decoder_;
  std::unique_ptr<char[]> buffer_;
  std::string_view unread_;
  bool ended_ = false;
};

}  // namespace atl::agent
