// The certificate of a server: which files, and what to do when they change.
#pragma once

#include <memory>

#include "cli/home.h"
#include "cli/up.h"
#include "net/tls.h"

namespace atl::cli {

struct ServerCertificate {
  std::string certificate;  // file names
  std::string key;
  std::shared_ptr<net::TlsServerContext> context;
};

// Null context without --domain. Call as root: the files may be root's alone. A CA of `atoll cert`
// is copied to HOME/ca.pem, where everybody can read it. Errors name the option or the command that
// helps.
Result<ServerCertificate> load_certificate(const ServeOptions& options, const Home& home);
// Looks at the files every minute and reads them again when they have changed. Never ends.
net::Task<void> follow_certificate(const ServerCertificate& certificate);

}  // namespace atl::cli
