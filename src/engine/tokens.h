// The secrets of a sandbox, derived from one random seed per home: the same before and after a
// restart, a pause or a cold boot, and nowhere on disk but in the seed.
#pragma once

#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace atl::engine {

class Tokens {
 public:
  // Reads HOME/keys/seed, or makes it (mode 0600; the directory 0700).
  static Result<Tokens> load(const std::string& keys_dir);

  // What the agent asks for in X-Access-Token.
  std::string access_token(const SandboxId& id) const;
  // What the proxy asks for on ports of a private sandbox.
  std::string traffic_token(const SandboxId& id) const;

 private:
  explicit Tokens(std::string seed) : seed_(std::move(seed)) {}
  std::string seed_;
};

}  // namespace atl::engine
