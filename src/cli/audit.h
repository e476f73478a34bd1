// `atoll audit`: who did what, from the home's audit log, newest first.
#pragma once

#include <string>

#include "base/result.h"

namespace atl::cli {

struct AuditOptions {
  std::string home;
  std::string subject;  // a sandbox or key id; empty: all
  std::string since;    // "2h", "7d"; empty: as far back as there are rows
  unsigned limit = 100;
  bool json = false;
};

Result<int> audit_command(const AuditOptions& options);

}  // namespace atl::cli
