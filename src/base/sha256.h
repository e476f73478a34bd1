// SHA-256 (FIPS 180-4), for the static programs, which carry no TLS library.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace atl {

class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  // The 32 bytes of the digest; the object is spent afterwards.
  std::string finish();

 private:
  void block(const unsigned char* bytes);

  std::array<std::uint32_t, 8> state_;
  std::array<unsigned char, 64> pending_;
  std::size_t used_ = 0;
  std::uint64_t total_ = 0;
};

std::string sha256(std::string_view bytes);

}  // namespace atl
