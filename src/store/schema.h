// The schema of the state file, as the steps that lead to it.
#pragma once

#include <span>

#include "base/result.h"
#include "store/sqlite.h"

namespace atl::store {

// One entry per schema version, in order. Old entries never change: files in the field have run
// them.
std::span<const char* const> migrations();

// Brings a file up to date, as one transaction. failed_precondition: written by a newer version.
Result<void> migrate(Database& database);

}  // namespace atl::store
