#include "agent/signature.h"

#include "base/encoding.h"
#include "base/ids.h"
#include "base/sha256.h"

namespace atl::agent {

std::string sign(const SignedRequest& request, std::string_view token) {
  Sha256 hash;
  hash.update(request.path);
  hash.update(request.operation == FileOperation::read ? ":read:" : ":write:");
  hash.update(request.username);
  hash.update(":");
  hash.update(token);
  if (request.expiration) hash.update(":" + std::to_string(*request.expiration));
  std::string text = base64_encode(hash.finish());
  while (!text.empty() && text.back() == '=') text.pop_back();
  return "v1_" + text;
}

Result<void> check_signature(const SignedRequest& request, std::string_view token,
                             const std::optional<std::string>& signature, std::int64_t now) {
  if (!signature) {
    return make_error(Errc::unauthenticated, "missing signature query parameter");
  }
  if (!constant_time_equal(*signature, sign(request, token))) {
    return make_error(Errc::unauthenticated, "invalid signature");
  }
  if (request.expiration && *request.expiration < now) {
    return make_error(Errc::unauthenticated, "signature is already expired");
  }
  return {};
}

}  // namespace atl::agent
