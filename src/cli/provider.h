// `atoll provider`: settings of providers, by the API of the server. Changes need the admin token,
// which root can read on the server's machine. Secrets come from stdin or the environment, never
// from the command line, where every process of the machine could read them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace atl::cli {

struct ProviderOptions {
  std::string home;
  std::string id;
  std::vector<std::string> settings;                  // NAME=VALUE
  std::vector<std::string> secrets;                   // names, values on stdin
  std::vector<std::string> secrets_from_environment;  // NAME=VARIABLE
  std::string code;
  std::string language;
  std::optional<int> timeout;
  std::string template_name;
  std::string arguments;
  bool json = false;
};

Result<int> provider_list(const ProviderOptions& options);
Result<int> provider_show(const ProviderOptions& options);
Result<int> provider_set(const ProviderOptions& options);
Result<int> provider_unset(const ProviderOptions& options);
Result<int> provider_use(const ProviderOptions& options);
// 0: it works.
Result<int> provider_test(const ProviderOptions& options);
// The exit code of the code.
Result<int> provider_exec(const ProviderOptions& options);

}  // namespace atl::cli
