// Hashes of keys and tokens, over OpenSSL. Output is lower-case hex, or the bytes themselves.
#pragma once

#include <string>
#include <string_view>

namespace atl {

std::string sha256_hex(std::string_view bytes);
std::string hmac_sha256_hex(std::string_view key, std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view bytes);

}  // namespace atl
