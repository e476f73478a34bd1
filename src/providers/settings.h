// Settings of providers as a team has them: one config object per provider, and which provider is
// active. They are read at each use, so a change applies at once.
//
// Secrets are sealed before they reach the store, bound to team, provider and field, and leave this
// class only towards a provider; what is shown has kMask in their place. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "providers/kind.h"
#include "store/secret_box.h"
#include "store/store.h"

namespace atl::providers {

inline constexpr std::string_view kMask = "********";

// A config and the values in it that nobody may see.
struct Loaded {
  json::object config;  // complete, secrets in clear
  std::vector<std::string> secrets;
};
// The text without them, whoever wrote them into it.
std::string scrubbed(std::string text, const std::vector<std::string>& secrets);

class Settings {
 public:
  // Values of environment variables that stand in for fields; empty: none.
  using Environment = std::function<std::string(const std::string& name)>;

  // `store` outlives it.
  Settings(store::Store& store, store::SecretBox box, Environment environment);

  // failed_precondition: not configured, or its secrets cannot be read any more.
  Result<Loaded> load(const std::string& team, const Kind& kind) const;
  // As `load`, of settings that are not stored (yet). Secrets that are masked or absent are those
  // that are stored, unless a URL changed: then they must be given again, so that nobody sends
  // them elsewhere without knowing them.
  Result<Loaded> preview(const std::string& team, const Kind& kind,
                         const json::object& given) const;
  // Checks and stores; null or "" removes a secret. invalid_argument names the field.
  Result<void> save(const std::string& team, const Kind& kind, const json::object& given);
  // False: there were none.
  Result<bool> remove(const std::string& team, const Kind& kind);

  struct Shown {
    bool configured = false;
    json::object config;  // what was set; secrets masked
    json::array from_environment;
    std::optional<Timestamp> updated_at;
  };
  Result<Shown> show(const std::string& team, const Kind& kind) const;

  // Empty: none.
  Result<std::string> active(const std::string& team) const;
  // failed_precondition: it is not configured.
  Result<void> set_active(const std::string& team, const std::string& id);

 private:
  struct Merged {
    json::object config;  // as given, secrets in clear
    std::vector<std::string> secrets;
  };
  Result<Merged> merge(const std::string& team, const Kind& kind, const json::object& given) const;
  Result<std::string> unseal(const std::string& team, const Kind& kind, const std::string& field,
                             const std::string& sealed) const;
  Result<Loaded> finish(const Kind& kind, Merged merged) const;

  store::Store& store_;
  const store::SecretBox box_;
  const Environment environment_;
};

}  // namespace atl::providers
