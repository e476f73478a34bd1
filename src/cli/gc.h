// `atoll gc`: removes what belongs to nobody any more.
//
// Runs that were killed leave a sandbox and a few files behind; the next run or server sweeps them
// too, this verb does it now. So it is with snapshots that nobody can name or use, if the server
// was killed before it could remove them. Paused sandboxes belong to somebody until
// --paused-older-than says that they do not.
#pragma once

#include <string>

#include "base/result.h"

namespace atl::cli {

struct GcOptions {
  std::string home;
  std::string paused_older_than;  // "7d"; empty: paused sandboxes stay
  bool json = false;
};

// Needs root.
Result<int> gc(const GcOptions& options);

}  // namespace atl::cli
