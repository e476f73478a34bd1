#include "agent/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

namespace atl::agent {
namespace {

constexpr std::size_t kInputBytes = 64 * 1024;
constexpr int kGzipWindow = 15 + 16;  // 32 KiB window, gzip header and trailer

// zlib counts in `unsigned`; longer spans are worked off in several calls.
uInt clamp(std::size_t n) {
  return uInt(std::min<std::size_t>(n, std::numeric_limits<int>::max()));
}

Bytef* bytes_of(const char* p) { return reinterpret_cast<Bytef*>(const_cast<char*>(p)); }

}  // namespace

void GzipDecoder::Close::operator()(z_stream_s* stream) const {
  inflateEnd(stream);
  delete stream;
}

Result<GzipDecoder> GzipDecoder::create() {
  auto stream = std::make_unique<z_stream_s>();
  if (inflateInit2(stream.get(), kGzipWindow) != Z_OK) {
    return make_error(Errc::resource_exhausted, "no memory for a gzip decoder");
  }
  return GzipDecoder(std::unique_ptr<z_stream_s, Close>(stream.release()));
}

Result<std::size_t> GzipDecoder::decode(std::string_view& in, std::span<char> out) {
  z_stream_s& z = *stream_;
  z.next_out = bytes_of(out.data());
  z.avail_out = clamp(out.size());
  const std::size_t room = z.avail_out;
  while (z.avail_out > 0 && (!in.empty() || !at_boundary_)) {
    if (at_boundary_) {
      if (inflateReset(&z) != Z_OK) return make_error(Errc::internal, "gzip: reset");
      at_boundary_ = false;
    }
    const uInt given = clamp(in.size());
    const uInt before = z.avail_out;
    z.next_in = bytes_of(in.data());
    z.avail_in = given;
    const int code = inflate(&z, Z_NO_FLUSH);
    in.remove_prefix(given - z.avail_in);
    if (code == Z_STREAM_END) {
      at_boundary_ = true;
      ++members_;
      continue;
    }
    // Z_BUF_ERROR: nothing could be done with what was there; more input is needed.
    if (code == Z_BUF_ERROR) break;
    if (code != Z_OK) {
      return make_error(Errc::invalid_argument,
                        std::string("gzip: ") + (z.msg != nullptr ? z.msg : "invalid data"));
    }
    if (z.avail_in == given && z.avail_out == before) break;
  }
  return room - z.avail_out;
}

void GzipEncoder::Close::operator()(z_stream_s* stream) const {
  deflateEnd(stream);
  delete stream;
}

Result<GzipEncoder> GzipEncoder::create(int level) {
  auto stream = std::make_unique<z_stream_s>();
  if (deflateInit2(stream.get(), level, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return make_error(Errc::resource_exhausted, "no memory for a gzip encoder");
  }
  return GzipEncoder(std::unique_ptr<z_stream_s, Close>(stream.release()));
}

Result<std::size_t> GzipEncoder::encode(std::string_view& in, std::span<char> out) {
  z_stream_s& z = *stream_;
  const uInt given = clamp(in.size());
  const uInt room = clamp(out.size());
  z.next_in = bytes_of(in.data());
  z.avail_in = given;
  z.next_out = bytes_of(out.data());
  z.avail_out = room;
  const int code = deflate(&z, Z_NO_FLUSH);
  if (code != Z_OK && code != Z_BUF_ERROR) return make_error(Errc::internal, "gzip: deflate");
  in.remove_prefix(given - z.avail_in);
  return std::size_t(room - z.avail_out);
}

Result<std::size_t> GzipEncoder::finish(std::span<char> out) {
  if (done_) return std::size_t(0);
  z_stream_s& z = *stream_;
  const uInt room = clamp(out.size());
  z.next_in = nullptr;
  z.avail_in = 0;
  z.next_out = bytes_of(out.data());
  z.avail_out = room;
  const int code = deflate(&z, Z_FINISH);
  if (code == Z_STREAM_END) {
    done_ = true;
  } else if (code != Z_OK && code != Z_BUF_ERROR) {
    return make_error(Errc::internal, "gzip: deflate");
  }
  return std::size_t(room - z.avail_out);
}

GunzipReader::GunzipReader(net::BodyReader& inner, GzipDecoder decoder)
    : inner_(inner), decoder_(std::move(decoder)), buffer_(new char[kInputBytes]) {}

net::Task<Result<std::size_t>> GunzipReader::read_some(std::span<char> into) {
  while (!ended_) {
    ATOLL_CO_TRY_ASSIGN(std::size_t got, decoder_.decode(unread_, into));
    if (got > 0) co_return got;
    if (!unread_.empty()) continue;  // a member ended; the next one begins in the same buffer
    ATOLL_CO_TRY_ASSIGN(std::size_t n,
                        co_await inner_.read_some(std::span<char>(buffer_.get(), kInputBytes)));
    if (n == 0) {
      if (!decoder_.complete()) {
        co_return make_error(Errc::invalid_argument, "gzip: unexpected end of the body");
      }
      ended_ = true;
    }
    unread_ = std::string_view(buffer_.get(), n);
  }
  co_return std::size_t(0);
}

}  // namespace atl::agent
