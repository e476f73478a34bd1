#include "workspace/digest.h"

#include <openssl/evp.h>

#include "base/encoding.h"
#include "base/result.h"

namespace atl::workspace {
namespace {

EVP_MD_CTX* of(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

void Digest::Free::operator()(void* context) const { EVP_MD_CTX_free(of(context)); }

Digest::Digest() : context_(EVP_MD_CTX_new()) {
  ATOLL_CHECK(context_ != nullptr);
  ATOLL_CHECK(EVP_DigestInit_ex(of(context_.get()), EVP_sha256(), nullptr) == 1);
}

void Digest::update(std::string_view bytes) {
  ATOLL_CHECK(EVP_DigestUpdate(of(context_.get()), bytes.data(), bytes.size()) == 1);
}

std::string Digest::finish_hex() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  ATOLL_CHECK(EVP_DigestFinal_ex(of(context_.get()), bytes, &size) == 1);
  return hex_encode({reinterpret_cast<const char*>(bytes), size});
}

}  // namespace atl::workspace
