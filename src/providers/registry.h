// The providers that there are.
#pragma once

#include <span>
#include <string_view>

#include "providers/kind.h"

namespace atl::providers {

std::span<const Kind> all_kinds();
// not_found names those that there are.
Result<const Kind*> find_kind(std::string_view id);

}  // namespace atl::providers
