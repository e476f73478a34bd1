#include "base/ids.h"

#include <sys/random.h>

#include <cerrno>

#include "base/encoding.h"
#include "base/result.h"

namespace atl {

std::string random_bytes(std::size_t count) {
  std::string out(count, '\0');
  std::size_t done = 0;
  while (done < count) {
    const ssize_t n = getrandom(out.data() + done, count - done, 0);
    if (n < 0 && errno == EINTR) continue;
    ATOLL_CHECK(n > 0);
    done += std::size_t(n);
  }
  return out;
}

std::string random_hex(std::size_t bytes) { return hex_encode(random_bytes(bytes)); }

std::string random_base36(std::size_t characters) {
  static constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string out;
  while (out.size() < characters) {
    for (char c : random_bytes(characters)) {
      const auto v = static_cast<unsigned char>(c);
      if (v < 252 && out.size() < characters) out += kDigits[v % 36];  // 252 = 7 * 36: no bias
    }
  }
  return out;
}

std::string random_uuid4() {
  std::string b = random_bytes(16);
  b[6] = char((b[6] & 0x0f) | 0x40);
  b[8] = char((b[8] & 0x3f) | 0x80);
  const std::string h = hex_encode(b);
  return h.substr(0, 8) + "-" + h.substr(8, 4) + "-" + h.substr(12, 4) + "-" + h.substr(16, 4) +
         "-" + h.substr(20);
}

bool constant_time_equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char diff = 0;
  for (std::size_t i = 0; i < a.size(); ++i) diff |= static_cast<unsigned char>(a[i] ^ b[i]);
  return diff == 0;
}

SandboxId SandboxId::generate() { return SandboxId("i" + random_base36(20)); }

std::optional<SandboxId> SandboxId::parse(std::string_view text) {
  if (text.empty() || text.size() > 40) return std::nullopt;
  for (char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) return std::nullopt;
  }
  return SandboxId(std::string(text));
}

}  // namespace atl
