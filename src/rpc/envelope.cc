#include "rpc/envelope.h"

#include <algorithm>
#include <array>
#include <memory>

namespace atl::rpc {

std::string make_envelope(std::uint8_t flags, std::string_view payload) {
  std::string out;
  out.reserve(kEnvelopeHead + payload.size());
  const auto length = std::uint32_t(payload.size());
  out.push_back(char(flags));
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(char(length >> shift));
  out.append(payload);
  return out;
}

Result<std::optional<Envelope>> EnvelopeParser::next() {
  if (buffer_.size() < kEnvelopeHead) return std::optional<Envelope>();
  std::size_t length = 0;
  for (std::size_t i = 1; i < kEnvelopeHead; ++i) length = length << 8 | std::uint8_t(buffer_[i]);
  if (length > limit_) {
    return make_error(Errc::resource_exhausted, "message size " + std::to_string(length) +
                                                    " is larger than the limit of " +
                                                    std::to_string(limit_) + " bytes");
  }
  if (buffer_.size() - kEnvelopeHead < length) return std::optional<Envelope>();
  Envelope envelope{std::uint8_t(buffer_[0]), buffer_.substr(kEnvelopeHead, length)};
  buffer_.erase(0, kEnvelopeHead + length);
  return std::optional<Envelope>(std::move(envelope));
}

net::Task<Result<std::optional<Envelope>>> EnvelopeReader::next() {
  constexpr std::size_t kRead = 16 * 1024;
  std::unique_ptr<char[]> chunk;
  for (;;) {
    auto ready = parser_.next();
    if (!ready.ok() || ready->has_value()) co_return ready;
    if (!chunk) chunk = std::make_unique<char[]>(kRead);
    auto read = body_.read_some(std::span<char>(chunk.get(), kRead));
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(read));
    if (n > 0) {
      parser_.feed(std::string_view(chunk.get(), n));
      continue;
    }
    if (parser_.partial()) {
      co_return make_error(Errc::invalid_argument,
                           "protocol error: the body ended inside a message");
    }
    co_return std::optional<Envelope>();
  }
}

}  // namespace atl::rpc
