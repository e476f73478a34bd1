// For tests: ClientHellos made by hand and by OpenSSL, and blocking TLS clients and servers.
#pragma once

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "certs/certs.h"
#include "egress/testing.h"

namespace atl::egress::testing {

inline std::string be(std::size_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += char(value >> (8 * i) & 0xff);
  return out;
}
inline std::string counted(const std::string& data, int bytes) {
  return be(data.size(), bytes) + data;
}
inline std::string extension(unsigned kind, const std::string& data) {
  return be(kind, 2) + counted(data, 2);
}
inline std::string server_name_extension(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += be(0, 1) + counted(name, 2);
  return extension(0, counted(list, 2));
}
// The handshake message.
inline std::string client_hello_body(const std::vector<std::string>& extensions) {
  std::string all;
  for (const std::string& one : extensions) all += one;
  std::string hello = be(0x0303, 2) + std::string(32, 'r') + counted("", 1) +
                      counted(be(0x1301, 2), 2) + counted(be(0, 1), 1);
  hello += be(all.size(), 2) + all;
  return be(1, 1) + counted(hello, 3);
}
inline std::string in_records(std::string_view message, std::size_t size) {
  std::string out;
  for (; !message.empty(); message.remove_prefix(std::min(size, message.size())))
    out += be(22, 1) + be(0x0301, 2) + counted(std::string(message.substr(0, size)), 2);
  return out;
}

using CtxPtr = std::shared_ptr<SSL_CTX>;
using SslPtr = std::shared_ptr<SSL>;

inline std::string openssl_client_hello(const std::string& name) {
  const CtxPtr ctx(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const SslPtr ssl(SSL_new(ctx.get()), SSL_free);
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), in, out);
  if (!name.empty()) SSL_set_tlsext_host_name(ssl.get(), name.c_str());
  SSL_connect(ssl.get());
  char* data = nullptr;
  const long n = BIO_get_mem_data(out, &data);
  return std::string(data, std::size_t(n));
}

inline std::shared_ptr<X509> read_certificate(const std::string& pem) {
  BIO* bio = BIO_new_mem_buf(pem.data(), int(pem.size()));
  std::shared_ptr<X509> out(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr), X509_free);
  BIO_free(bio);
  return out;
}

// A TLS connection over a blocking socket.
class Tls {
 public:
  // As a client that trusts `ca_pem` only.
  static Tls connect(sys::UniqueFd fd, const std::string& name, const std::string& ca_pem) {
    Tls out;
    out.ctx_ = CtxPtr(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(out.ctx_.get()), read_certificate(ca_pem).get());
    SSL_CTX_set_verify(out.ctx_.get(), SSL_VERIFY_PEER, nullptr);
    out.start(std::move(fd));
    SSL_set_tlsext_host_name(out.ssl_.get(), name.c_str());
    SSL_set1_host(out.ssl_.get(), name.c_str());
    out.ok_ = SSL_connect(out.ssl_.get()) == 1;
    ERR_clear_error();
    return out;
  }
  static CtxPtr server_context(const certs::Pem& pem) {
    CtxPtr ctx(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
    SSL_CTX_use_certificate(ctx.get(), read_certificate(pem.certificate).get());
    BIO* bio = BIO_new_mem_buf(pem.key.data(), int(pem.key.size()));
    EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    SSL_CTX_use_PrivateKey(ctx.get(), key);
    EVP_PKEY_free(key);
    BIO_free(bio);
    return ctx;
  }
  // As a server; the descriptor stays the caller's.
  static Tls accept(int fd, CtxPtr ctx) {
    Tls out;
    out.ctx_ = std::move(ctx);
    out.start(sys::UniqueFd(::dup(fd)));
    out.ok_ = SSL_accept(out.ssl_.get()) == 1;
    ERR_clear_error();
    return out;
  }

  bool ok() const { return ok_; }
  bool send(std::string_view bytes) {
    ERR_clear_error();
    return SSL_write(ssl_.get(), bytes.data(), int(bytes.size())) == int(bytes.size());
  }
  std::string receive() {
    std::string out(20'000, '\0');
    ERR_clear_error();
    const int n = SSL_read(ssl_.get(), out.data(), int(out.size()));
    out.resize(n > 0 ? std::size_t(n) : 0);
    return out;
  }
  std::string receive_until(std::string_view until) {
    std::string out;
    while (out.find(until) == std::string::npos) {
      const std::string more = receive();
      if (more.empty()) break;
      out += more;
    }
    return out;
  }
  std::string issuer() const {
    std::shared_ptr<X509> peer(SSL_get1_peer_certificate(ssl_.get()), X509_free);
    if (!peer) return {};
    char text[256];
    X509_NAME_oneline(X509_get_issuer_name(peer.get()), text, sizeof text);
    return text;
  }

 private:
  void start(sys::UniqueFd fd) {
    ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets without MSG_NOSIGNAL
    fd_ = std::make_shared<sys::UniqueFd>(std::move(fd));
    ssl_ = SslPtr(SSL_new(ctx_.get()), SSL_free);
    SSL_set_fd(ssl_.get(), fd_->get());
  }
  CtxPtr ctx_;
  std::shared_ptr<sys::UniqueFd> fd_;
  SslPtr ssl_;
  bool ok_ = false;
};

}  // namespace atl::egress::testing
