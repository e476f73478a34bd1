// The programs of runners/, as text: what runs inside a sandbox around the code of a client.
#pragma once

#include <string_view>

#include "executor/request.h"

namespace atl::executor {

std::string_view runner_of(Language language);   // run.py, run.js
std::string_view checker_of(Language language);  // check.py, check.js

}  // namespace atl::executor
