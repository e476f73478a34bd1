// Framing of streaming bodies: one flag byte, the length as four bytes big-endian, the payload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/http.h"

namespace atl::rpc {

inline constexpr std::uint8_t kFlagCompressed = 0x01;
inline constexpr std::uint8_t kFlagEndStream = 0x02;
inline constexpr std::size_t kEnvelopeHead = 5;

struct Envelope {
  std::uint8_t flags = 0;
  std::string payload;

  bool operator==(const Envelope&) const = default;
};

std::string make_envelope(std::uint8_t flags, std::string_view payload);

// Cuts a byte stream into envelopes. Never holds more than one envelope of `limit` bytes and one
// `feed` beyond it.
class EnvelopeParser {
 public:
  explicit EnvelopeParser(std::size_t limit) : limit_(limit) {}

  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // nullopt: more bytes are needed. Errors: resource_exhausted for a payload over the limit (from
  // its length alone).
  Result<std::optional<Envelope>> next();
  // Bytes of an unfinished envelope are left.
  bool partial() const { return !buffer_.empty(); }

 private:
  std::size_t limit_;
  std::string buffer_;
};

// The envelopes of a body, one after the other. `body` outlives the reader.
class EnvelopeReader {
 public:
  EnvelopeReader(net::BodyReader& body, std::size_t limit) : body_(body), parser_(limit) {}

  // nullopt: the body ended between two envelopes. Errors: invalid_argument if it ended inside one;
  // those of the body.
  net::Task<Result<std::optional<Envelope>>> next();

 private:
  net::BodyReader& body_;
  EnvelopeParser parser_;
};

}  // namespace atl::rpc
