// What workspaces may be called: the same for those who keep them and those who name one.
#pragma once

#include <string_view>

#include "base/result.h"

namespace atl::store {

// 1 to 64 of [A-Za-z0-9._-], the first one a letter or digit. invalid_argument.
Result<void> check_workspace_name(std::string_view name);

}  // namespace atl::store
