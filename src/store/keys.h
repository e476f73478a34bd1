// API keys: `e2b_` and 40 hex digits. The store keeps their SHA-256 (they are random, so no salt or
// stretching is needed); the secret is shown once, to whoever created it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "store/store.h"

namespace atl::store {

inline constexpr std::string_view kKeyPrefix = "e2b_";

struct NewKey {
  KeyRecord record;
  std::string secret;  // the whole key; nobody can tell it again
};

Result<NewKey> create_key(Store& store, const std::string& team_id, const std::string& name);
// nullopt: no such key. Remembers the use.
Result<std::optional<KeyRecord>> verify_key(Store& store, std::string_view secret);

// The key in the file at `path`, made (file mode 0600, owner only) on the first start, and made
// anew when the store does not know the one in the file. `fresh` tells which.
struct DefaultKey {
  std::string secret;
  bool fresh = false;
};
Result<DefaultKey> ensure_default_key(Store& store, const std::string& path);

// Reads a small file of secrets; not_found if there is none. Refuses symbolic links and files that
// others may read.
Result<std::string> read_secret_file(const std::string& path);
// Replaces the file as a whole: a crash leaves the old one or the new one. Mode 0600.
Result<void> write_secret_file(const std::string& path, std::string_view content);

}  // namespace atl::store
