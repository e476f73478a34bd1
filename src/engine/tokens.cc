#include "engine/tokens.h"

#include <sys/stat.h>

#include <cerrno>

#include "store/crypto.h"
#include "store/keys.h"

namespace atl::engine {
namespace {

constexpr std::size_t kSeedBytes = 32;

}  // namespace

Result<Tokens> Tokens::load(const std::string& keys_dir) {
  if (::mkdir(keys_dir.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_error("create " + keys_dir);
  const std::string path = keys_dir + "/seed";
  auto content = store::read_secret_file(path);
  if (!content.ok() && content.error().code == Errc::not_found) {
    ATOLL_TRY(store::write_secret_file(path, random_hex(kSeedBytes) + "\n"));
    content = store::read_secret_file(path);
  }
  if (!content.ok()) return std::move(content).error().with("token seed");
  std::string seed = std::move(*content);
  while (!seed.empty() && (seed.back() == '\n' || seed.back() == '\r')) seed.pop_back();
  // A short seed would make tokens guessable.
  if (seed.size() < 2 * kSeedBytes) return make_error(Errc::data_loss, path + " is damaged");
  return Tokens(std::move(seed));
}

std::string Tokens::access_token(const SandboxId& id) const {
  return hmac_sha256_hex(seed_, id.str());
}

// The prefix keeps the two kinds apart: ids have no colon.
std::string Tokens::traffic_token(const SandboxId& id) const {
  return hmac_sha256_hex(seed_, "traffic:" + id.str());
}

}  // namespace atl::engine
