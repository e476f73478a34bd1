#pragma once

#include <string_view>

namespace atl::snapshot {

// inside/preload.c, a shared library, and inside/helper.c, a static program.
std::string_view preload_library();
std::string_view helper_program();

}  // namespace atl::snapshot
