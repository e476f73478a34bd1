// Interception of TLS for header rules: towards the sandbox a certificate of the server's own
// interception CA, which sandboxes trust; towards the host full verification, so that a header with
// a secret reaches nobody else.
#pragma once

#include <memory>
#include <string>

#include "net/tls.h"

namespace atl::egress {

// PEM of the interception CA of this home (HOME/keys/egress-ca.pem and .key), made if there is
// none. This is what sandboxes get as `caBundle`.
Result<std::string> ca_pem(const std::string& home);

class Interceptor {
 public:
  // `extra_ca`: a PEM file of CAs that hosts may also have their certificates from; empty: none.
  static Result<std::shared_ptr<Interceptor>> create(const std::string& home,
                                                     const std::string& extra_ca);

  // The sandbox's side; `first` is its ClientHello. HTTP/1.1 only.
  net::Task<Result<std::unique_ptr<net::Stream>>> accept(std::unique_ptr<net::Stream> plain,
                                                         std::string first);
  // The host's side.
  net::Task<Result<std::unique_ptr<net::Stream>>> connect(std::unique_ptr<net::Stream> plain,
                                                          std::string name);

 private:
  Interceptor() = default;
  std::shared_ptr<net::TlsServerContext> inside_;
  std::shared_ptr<net::TlsClientContext> outside_;
};

}  // namespace atl::egress
