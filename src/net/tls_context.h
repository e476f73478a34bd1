// Inside of src/net: OpenSSL objects behind the contexts of tls.h.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/tls.h"

namespace atl::net {

// The oldest error of OpenSSL's queue of this thread as ours; empties the queue.
Error openssl_error(std::string_view what);
// {"h2", "http/1.1"} as ALPN sends it: each name behind its length.
Result<std::string> alpn_wire(const std::vector<std::string>& names);

struct SslFree {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using SslPtr = std::unique_ptr<SSL, SslFree>;

// What accept_tls and connect_tls need of a context.
class TlsServerContextImpl : public TlsServerContext {
 public:
  virtual SslPtr make_ssl() = 0;
};
class TlsClientContextImpl : public TlsClientContext {
 public:
  virtual SslPtr make_ssl() = 0;
  virtual Verify verify() const = 0;
};

}  // namespace atl::net
