// `atoll cert`: a development CA and a wildcard certificate for the domain of a server.
//
//   HOME/keys/ca.pem, ca.key          made once, kept for ten years; reused for every domain
//   HOME/keys/DOMAIN.pem, DOMAIN.key  DOMAIN, *.DOMAIN, localhost, 127.0.0.1, ::1
//
// A certificate that is good for another month is kept, unless `renew` asks for a new one. For a
// public domain use a public CA instead, and give its files to `atoll serve`.
#pragma once

#include <string>

#include "base/result.h"

namespace atl::cli {

struct CertOptions {
  std::string home;
  std::string domain;
  bool renew = false;
  bool json = false;
};

struct CertFiles {
  std::string ca;
  std::string certificate;
  std::string key;
};

// Where the files of a domain are, whether they exist or not.
CertFiles cert_files(const std::string& home, const std::string& domain);
// Makes what is missing. Call as the owner of HOME/keys.
Result<CertFiles> ensure_cert(const CertOptions& options);
// The verb: makes the files, prints where they are and how clients come to trust them.
Result<int> cert_command(const CertOptions& options);

}  // namespace atl::cli
