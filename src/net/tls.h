// TLS over a Stream, both sides, and the contexts that hold certificates. OpenSSL; TLS 1.2 and up.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/stream.h"

namespace atl::net {

// Certificates of a server. Thread-safe once made; shared by all connections.
class TlsServerContext {
 public:
  // PEM files: certificate chain and key. `alpn` in order of preference, e.g. {"h2", "http/1.1"}.
  static Result<std::shared_ptr<TlsServerContext>> from_files(const std::string& certificate,
                                                              const std::string& key,
                                                              std::vector<std::string> alpn);
  // One certificate per name, made by `pick` (PEM chain and key) when a client asks for it by SNI;
  // the egress proxy's interception. An error refuses the handshake.
  struct Pem {
    std::string certificate;
    std::string key;
  };
  using Pick = std::function<Result<Pem>(std::string_view server_name)>;
  static Result<std::shared_ptr<TlsServerContext>> by_name(Pick pick,
                                                           std::vector<std::string> alpn);
  virtual ~TlsServerContext() = default;
  // Reads the files again (a renewed certificate); connections that exist keep theirs.
  virtual Result<void> reload() = 0;
};

// What a client trusts.
class TlsClientContext {
 public:
  enum class Verify { peer, none };
  // The machine's store and, if given, one more PEM file of CAs.
  static Result<std::shared_ptr<TlsClientContext>> create(Verify verify, std::string extra_ca_file);
  virtual ~TlsClientContext() = default;
};

struct TlsStream {
  std::unique_ptr<Stream> stream;
  std::string alpn;         // chosen protocol; empty: none
  std::string server_name;  // what the client asked for (server side)
};

// Handshakes within `limit`. `first` are bytes that were already read from the plain stream (a
// ClientHello that somebody looked at).
Task<Result<TlsStream>> accept_tls(std::unique_ptr<Stream> plain,
                                   std::shared_ptr<TlsServerContext> context,
                                   std::chrono::milliseconds limit, std::string first = {});
Task<Result<TlsStream>> connect_tls(std::unique_ptr<Stream> plain,
                                    std::shared_ptr<TlsClientContext> context,
                                    std::string server_name, std::vector<std::string> alpn,
                                    std::chrono::milliseconds limit);

}  // namespace atl::net
