// Is what was typed so far the beginning of something longer?
#pragma once

#include <string_view>

#include "cli/language.h"

namespace atl::cli {

// A guess for the prompt, by open brackets, quotes and blocks. An empty line ends a block of
// Python, as it does in Python's own prompt.
bool is_unfinished(const Language& language, std::string_view text);

}  // namespace atl::cli
