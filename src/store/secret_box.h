// SecretBox: secrets that are kept on disk and must be read again: credentials of other services.
// AES-256-GCM; the key is a file of its own (HOME/keys, mode 0600), so that a copy of the state
// file alone tells nothing.
//
// Every sealed text is bound to its place by a context (team, provider, field): moved to another
// one it does not open. Thread-safe; cheap enough for every request.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::store {

class SecretBox {
 public:
  static constexpr std::size_t kKeyBytes = 32;

  // The key in the file at `path`, made on the first start. failed_precondition: the file is not
  // one of ours, or others may read it.
  static Result<SecretBox> open(const std::string& path);
  // Precondition: `key` has kKeyBytes bytes.
  explicit SecretBox(std::string key);
  ~SecretBox();
  SecretBox(SecretBox&&) noexcept = default;
  SecretBox& operator=(SecretBox&&) noexcept = default;

  // Different for each call, also for the same text: "v1:" and base64 of nonce, text and tag.
  std::string seal(std::string_view secret, std::string_view context) const;
  // data_loss: sealed by another key or for another context, or damaged.
  Result<std::string> unseal(std::string_view sealed, std::string_view context) const;

 private:
  std::string key_;
};

}  // namespace atl::store
