#include "session/signature.h"

#include <charconv>

#include "base/encoding.h"
#include "base/ids.h"
#include "store/crypto.h"

namespace atl::session {
namespace {

constexpr std::string_view kNode = "X-Atoll-Node";
constexpr std::string_view kTeam = "X-Atoll-Team";
constexpr std::string_view kTime = "X-Atoll-Time";
constexpr std::string_view kSignature = "X-Atoll-Signature";
constexpr std::int64_t kGoodFor = 60;

std::int64_t seconds_of(Timestamp at) {
  return std::chrono::floor<std::chrono::seconds>(at).time_since_epoch().count();
}

// No part can hold a newline: they come from, or go into, the head of a request.
std::string signature(const net::RequestHead& head, std::string_view secret) {
  std::string text = head.method + '\n' + head.target;
  for (const std::string_view name : {kNode, kTeam, kTime})
    text += '\n' + std::string(head.headers.get(name));
  return hmac_sha256_hex(secret, text);
}

}  // namespace

void sign(net::RequestHead& head, const Signed& by, std::string_view secret, Timestamp now) {
  head.headers.set(kNode, by.node);
  head.headers.set(kTeam, percent_encode(by.team));
  head.headers.set(kTime, std::to_string(seconds_of(now)));
  head.headers.set(kSignature, signature(head, secret));
}

std::optional<Signed> verify(const net::RequestHead& head, std::string_view secret, Timestamp now) {
  const std::string_view given = head.headers.get(kSignature);
  if (given.empty() || secret.empty()) return std::nullopt;
  if (!constant_time_equal(given, signature(head, secret))) return std::nullopt;
  const std::string_view time = head.headers.get(kTime);
  std::int64_t at = 0;
  const auto [stop, error] = std::from_chars(time.data(), time.data() + time.size(), at);
  if (error != std::errc() || stop != time.data() + time.size()) return std::nullopt;
  const std::int64_t age = seconds_of(now) - at;
  if (age > kGoodFor || age < -kGoodFor) return std::nullopt;
  const auto team = percent_decode(head.headers.get(kTeam));
  if (!team) return std::nullopt;
  return Signed{std::string(head.headers.get(kNode)), *team};
}

void erase_signature(net::Headers& headers) {
  for (const std::string_view name : {kNode, kTeam, kTime, kSignature}) headers.erase(name);
}

}  // namespace atl::session
