// Certificates that the control plane wants the sandbox to trust (it may look into TLS connections
// of the sandbox that a policy sends through its proxy).
//
// Written as the sandbox's root: the bundle alone as one file, and between two marker lines in the
// system's list, where a later bundle replaces it. Readers of PEM skip the markers.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::agent {

struct TrustStore {
  std::string own = "/usr/local/share/ca-certificates/atoll.crt";
  std::string system = "/etc/ssl/certs/ca-certificates.crt";
};

inline constexpr std::size_t kMaxBundle = 256 << 10;

// PEM with at least one certificate, no NUL, not too long. Errors: invalid_argument.
Result<void> check_ca_bundle(std::string_view pem);
// Files appear whole or not at all; one that is right already is not touched.
Result<void> install_ca_bundle(const std::string& pem, const TrustStore& store);
// `list` with the section replaced, or appended if it had none.
std::string with_bundle(std::string_view list, std::string_view pem);
// What tells Node, OpenSSL and Python of it.
std::map<std::string, std::string> ca_variables(const TrustStore& store);

}  // namespace atl::agent
