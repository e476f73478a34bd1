#include "store/secret_box.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <memory>

#include "base/encoding.h"
#include "base/ids.h"
#include "store/keys.h"

namespace atl::store {
namespace {

constexpr std::string_view kVersion = "v1:";
constexpr std::size_t kNonceBytes = 12;  // random: far fewer than 2^32 seals per key
constexpr std::size_t kTagBytes = 16;

struct CipherFree {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, CipherFree>;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

Error not_ours() {
  return make_error(Errc::data_loss,
                    "the secret was sealed with another key or for another place, or is damaged");
}

std::optional<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); i += 2) escaped += "%" + std::string(text.substr(i, 2));
  return percent_decode(escaped);
}

}  // namespace

Result<SecretBox> SecretBox::open(const std::string& path) {
  auto content = read_secret_file(path);
  if (content.ok()) {
    while (!content->empty() && content->back() == '\n') content->pop_back();
    auto key = from_hex(*content);
    if (!key || key->size() != kKeyBytes) {
      return make_error(Errc::failed_precondition,
                        path +
                            " is not a key of 64 hex digits: restore it, or remove it and set "
                            "the providers' secrets again");
    }
    return SecretBox(std::move(*key));
  }
  if (content.error().code != Errc::not_found) return std::move(content).error();
  std::string key = random_bytes(kKeyBytes);
  ATOLL_TRY(write_secret_file(path, hex_encode(key) + "\n"));
  return SecretBox(std::move(key));
}

SecretBox::SecretBox(std::string key) : key_(std::move(key)) {
  ATOLL_CHECK(key_.size() == kKeyBytes);
}

SecretBox::~SecretBox() { OPENSSL_cleanse(key_.data(), key_.size()); }

std::string SecretBox::seal(std::string_view secret, std::string_view context) const {
  const std::string nonce = random_bytes(kNonceBytes);
  std::string sealed(secret.size(), '\0');
  std::string tag(kTagBytes, '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int length = 0;
  // None of these fails but for a lack of memory.
  ATOLL_CHECK(cipher != nullptr);
  ATOLL_CHECK(EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key_),
                                 bytes_of(std::string_view(nonce))) == 1);
  ATOLL_CHECK(EVP_EncryptUpdate(cipher.get(), nullptr, &length, bytes_of(context),
                                int(context.size())) == 1);
  ATOLL_CHECK(EVP_EncryptUpdate(cipher.get(), bytes_of(sealed), &length, bytes_of(secret),
                                int(secret.size())) == 1);
  ATOLL_CHECK(EVP_EncryptFinal_ex(cipher.get(), bytes_of(sealed) + length, &length) == 1);
  ATOLL_CHECK(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag.data()) == 1);
  return std::string(kVersion) + base64_encode(nonce + sealed + tag);
}

Result<std::string> SecretBox::unseal(std::string_view sealed, std::string_view context) const {
  if (!sealed.starts_with(kVersion)) return not_ours();
  const auto raw = base64_decode(sealed.substr(kVersion.size()));
  if (!raw || raw->size() < kNonceBytes + kTagBytes) return not_ours();
  const std::string_view nonce = std::string_view(*raw).substr(0, kNonceBytes);
  const std::string_view body =
      std::string_view(*raw).substr(kNonceBytes, raw->size() - kNonceBytes - kTagBytes);
  std::string tag = raw->substr(raw->size() - kTagBytes);
  std::string secret(body.size(), '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int length = 0;
  ATOLL_CHECK(cipher != nullptr);
  const bool opened =
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key_),
                         bytes_of(nonce)) == 1 &&
      EVP_DecryptUpdate(cipher.get(), nullptr, &length, bytes_of(context), int(context.size())) ==
          1 &&
      EVP_DecryptUpdate(cipher.get(), bytes_of(secret), &length, bytes_of(body),
                        int(body.size())) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
      EVP_DecryptFinal_ex(cipher.get(), bytes_of(secret) + length, &length) == 1;
  if (!opened) {
    OPENSSL_cleanse(secret.data(), secret.size());
    return not_ours();
  }
  return secret;
}

}  // namespace atl::store
