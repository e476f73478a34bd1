#include "store/crypto.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/encoding.h"
#include "base/result.h"

namespace atl {
namespace {

std::string hex_of(const unsigned char* digest, unsigned length) {
  return hex_encode(std::string_view(reinterpret_cast<const char*>(digest), length));
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  ATOLL_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) == 1);
  return hex_of(digest, length);
}

std::string hmac_sha256_hex(std::string_view key, std::string_view bytes) {
  return hex_encode(hmac_sha256(key, bytes));
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  ATOLL_CHECK(HMAC(EVP_sha256(), key.data(), int(key.size()), data, bytes.size(), digest,
                   &length) != nullptr);
  return std::string(reinterpret_cast<const char*>(digest), length);
}

}  // namespace atl
