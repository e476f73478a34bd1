#include "store/workspace_name.h"

#include <algorithm>

namespace atl::store {
namespace {

bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

Result<void> check_workspace_name(std::string_view name) {
  const bool good = !name.empty() && name.size() <= 64 && is_alnum(name.front()) &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return is_alnum(c) || c == '.' || c == '_' || c == '-';
                    });
  if (good) return {};
  return make_error(Errc::invalid_argument,
                    "invalid name of a workspace: 1 to 64 letters, digits, '.', '_' and '-', the "
                    "first one a letter or digit");
}

}  // namespace atl::store
