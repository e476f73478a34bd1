#include "egress/first_bytes.h"

#include <array>

#include "egress/client_hello.h"

namespace atl::egress {
namespace {

constexpr std::size_t kMaxMethod = 16;
constexpr char kTlsHandshake = 22;

enum class Looks { http, unclear, other };

// HTTP/2 with prior knowledge starts with "PRI * HTTP/2.0" and is nothing that can be checked here.
Looks looks_like_http(std::string_view bytes) {
  std::size_t letters = 0;
  while (letters < bytes.size() && bytes[letters] >= 'A' && bytes[letters] <= 'Z') ++letters;
  if (letters == bytes.size()) return letters <= kMaxMethod ? Looks::unclear : Looks::other;
  if (letters == 0 || letters > kMaxMethod || bytes[letters] != ' ') return Looks::other;
  if (bytes.substr(0, letters) == "PRI") return Looks::other;
  return Looks::http;
}

// True: enough was read.
bool classify(FirstBytes& first) {
  if (first.bytes.empty()) return false;
  if (first.bytes.front() == kTlsHandshake) {
    auto hello = parse_client_hello(first.bytes);
    if (!hello.ok()) return true;
    if (!*hello) return false;
    first.kind = FirstBytes::Kind::tls;
    first.server_name = (*hello)->server_name;
    return true;
  }
  const Looks looks = looks_like_http(first.bytes);
  if (looks == Looks::http) first.kind = FirstBytes::Kind::http;
  return looks != Looks::unclear;
}

}  // namespace

net::Task<Result<FirstBytes>> read_first_bytes(net::Stream& stream,
                                               std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + limit;
  FirstBytes first;
  std::array<char, 4096> piece{};
  while (!classify(first)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) break;
    stream.set_read_timeout(left);
    auto reading = stream.read_some(piece);
    const auto n = co_await std::move(reading);
    if (!n.ok() && n.error().code == Errc::deadline_exceeded) break;
    if (!n.ok()) co_return n.error();
    if (*n == 0 && first.bytes.empty())
      co_return make_error(Errc::unavailable, "the connection ended before its first byte");
    if (*n == 0) break;
    first.bytes.append(piece.data(), *n);
  }
  stream.set_read_timeout(std::nullopt);
  co_return first;
}

}  // namespace atl::egress
