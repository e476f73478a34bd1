// `atoll doctor`: one line per check of this machine, and a FIX line where one fails.
#pragma once

#include <string>

#include "base/result.h"

namespace atl::cli {

struct DoctorOptions {
  std::string home;
  std::string listen = "127.0.0.1:3000";
  std::string domain;  // checks its certificate too
  std::string tls_cert;
  std::string tls_key;
  bool json = false;
};

// 0 when nothing failed, 1 otherwise.
Result<int> doctor(const DoctorOptions& options);

}  // namespace atl::cli
