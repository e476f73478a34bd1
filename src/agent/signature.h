// URL signatures: how a download or upload URL carries the right to use it (wire/sandbox-agent.md
// §11).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::agent {

enum class FileOperation { read, write };

struct SignedRequest {
  std::string path;  // as in the query, not resolved
  FileOperation operation = FileOperation::read;
  std::string username;                    // as in the query; empty if absent
  std::optional<std::int64_t> expiration;  // unix seconds
};

// "v1_" + base64 without padding.
std::string sign(const SignedRequest& request, std::string_view token);

// Errors: unauthenticated, with the exact texts clients compare. Expiry is looked at after the
// signature, and the second of the expiry itself is still valid.
Result<void> check_signature(const SignedRequest& request, std::string_view token,
                             const std::optional<std::string>& signature, std::int64_t now);

}  // namespace atl::agent
