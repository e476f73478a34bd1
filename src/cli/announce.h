// Where a server can be reached, and how a person is told.
#pragma once

#include <string>

#include "cli/sockets.h"
#include "cli/up.h"

namespace atl::cli {

struct Addresses {
  std::string http;      // http://127.0.0.1:3000
  std::string https;     // https://api.D:3443; empty: no TLS
  std::string tls;       // 127.0.0.1:3443: where that is; empty: no TLS
  std::string domain;    // as clients must write it: with the port unless it is 443; empty: none
  std::string metrics;   // http://127.0.0.1:9464/metrics; empty: none
  std::string executor;  // http://127.0.0.1:9385; empty: it is not served
  std::string ca_file;   // of a certificate made by `atoll cert`; empty: clients trust it anyway
};

Addresses addresses_of(const Sockets& sockets, const ServeOptions& options);

// The exports on stdout, which then is closed for good; an example on stderr.
void announce(const Addresses& addresses, const std::string& key);

}  // namespace atl::cli
