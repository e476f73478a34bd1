#include "net/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <array>
#include <mutex>

#include "base/log.h"

namespace atl::net {
namespace {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Cert = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using SharedCtx = std::shared_ptr<SSL_CTX>;

constexpr long kMaxChain = 16;

int no_passphrase(char*, int, int, void*) { return -1; }

Result<SharedCtx> new_ctx(const SSL_METHOD* method) {
  SharedCtx ctx(SSL_CTX_new(method), SSL_CTX_free);
  if (!ctx) return openssl_error("make a TLS context");
  // TLS 1.2 only with forward secrecy and AEAD; the suites of 1.3 are all like that.
  if (SSL_CTX_set_min_proto_version(ctx.get(), TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_cipher_list(ctx.get(), "ECDHE+AESGCM:ECDHE+CHACHA20") != 1) {
    return openssl_error("configure TLS");
  }
  SSL_CTX_set_options(ctx.get(), SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  // Idle connections give their record buffers back.
  SSL_CTX_set_mode(ctx.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_passwd_cb(ctx.get(), no_passphrase);
  SSL_CTX_set_session_cache_mode(ctx.get(), SSL_SESS_CACHE_OFF);  // tickets need no cache
  return ctx;
}

// A client that offers protocols, but none of ours, is refused: answering in another protocol than
// it speaks is how cross-protocol attacks begin.
int choose_alpn(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* in,
                unsigned in_length, void* arg) {
  const auto& wire = *static_cast<const std::string*>(arg);
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_length,
                            reinterpret_cast<const unsigned char*>(wire.data()),
                            unsigned(wire.size()), in, in_length) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Result<SharedCtx> new_server_ctx(const std::string& wire) {
  ATOLL_TRY_ASSIGN(SharedCtx ctx, new_ctx(TLS_server_method()));
  SSL_CTX_set_num_tickets(ctx.get(), 1);
  if (!wire.empty())
    SSL_CTX_set_alpn_select_cb(ctx.get(), choose_alpn, const_cast<std::string*>(&wire));
  return ctx;
}

class FileContext final : public TlsServerContextImpl {
 public:
  FileContext(std::string certificate, std::string key, std::string wire)
      : certificate_(std::move(certificate)), key_(std::move(key)), wire_(std::move(wire)) {}

  Result<void> reload() override {
    ATOLL_TRY_ASSIGN(SharedCtx ctx, new_server_ctx(wire_));
    if (SSL_CTX_use_certificate_chain_file(ctx.get(), certificate_.c_str()) != 1)
      return bad_file("the certificate " + certificate_);
    if (SSL_CTX_use_PrivateKey_file(ctx.get(), key_.c_str(), SSL_FILETYPE_PEM) != 1)
      return bad_file("the key " + key_);
    if (SSL_CTX_check_private_key(ctx.get()) != 1) {
      ERR_clear_error();
      return make_error(Errc::invalid_argument,
                        "the key " + key_ + " does not belong to the certificate " + certificate_);
    }
    std::lock_guard lock(mutex_);
    ctx_ = std::move(ctx);
    return {};
  }

  SslPtr make_ssl() override {
    std::lock_guard lock(mutex_);
    return SslPtr(SSL_new(ctx_.get()));
  }

 private:
  static Error bad_file(const std::string& what) {
    Error error = openssl_error(what);
    error.code = Errc::invalid_argument;
    return error;
  }

  const std::string certificate_;
  const std::string key_;
  const std::string wire_;
  std::mutex mutex_;
  SharedCtx ctx_;
};

// Gives the connection the certificate and key of `pem`.
Result<void> use_pem(SSL* ssl, const TlsServerContext::Pem& pem) {
  Bio certs(BIO_new_mem_buf(pem.certificate.data(), int(pem.certificate.size())));
  Bio key_in(BIO_new_mem_buf(pem.key.data(), int(pem.key.size())));
  Cert leaf(certs ? PEM_read_bio_X509(certs.get(), nullptr, no_passphrase, nullptr) : nullptr);
  Key key(key_in ? PEM_read_bio_PrivateKey(key_in.get(), nullptr, no_passphrase, nullptr)
                 : nullptr);
  if (!leaf || !key || SSL_use_certificate(ssl, leaf.get()) != 1 ||
      SSL_use_PrivateKey(ssl, key.get()) != 1) {
    return openssl_error("use a certificate");
  }
  for (long i = 0; i < kMaxChain; ++i) {
    Cert next(PEM_read_bio_X509(certs.get(), nullptr, no_passphrase, nullptr));
    if (!next) break;
    if (SSL_add1_chain_cert(ssl, next.get()) != 1) return openssl_error("use a chain");
  }
  ERR_clear_error();  // the end of the PEM text is an error to OpenSSL
  return {};
}

class NameContext final : public TlsServerContextImpl {
 public:
  NameContext(Pick pick, std::string wire) : pick_(std::move(pick)), wire_(std::move(wire)) {}

  Result<void> init() {
    ATOLL_TRY_ASSIGN(ctx_, new_server_ctx(wire_));
    // A resumed session would skip the choice of a certificate, and the policy behind it.
    SSL_CTX_set_options(ctx_.get(), SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(ctx_.get(), 0);
    SSL_CTX_set_cert_cb(ctx_.get(), choose_certificate, this);
    return {};
  }
  Result<void> reload() override { return {}; }
  SslPtr make_ssl() override { return SslPtr(SSL_new(ctx_.get())); }

 private:
  static int choose_certificate(SSL* ssl, void* arg) {
    const char* name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    auto pem = static_cast<NameContext*>(arg)->pick_(name != nullptr ? name : "");
    if (!pem.ok()) return 0;
    auto used = use_pem(ssl, *pem);
    if (!used.ok()) log::error("no certificate for a name", {{"error", used.error().message}});
    return used.ok() ? 1 : 0;
  }

  const Pick pick_;
  const std::string wire_;
  SharedCtx ctx_;
};

class ClientContext final : public TlsClientContextImpl {
 public:
  ClientContext(SharedCtx ctx, Verify verify) : ctx_(std::move(ctx)), verify_(verify) {}
  SslPtr make_ssl() override { return SslPtr(SSL_new(ctx_.get())); }
  Verify verify() const override { return verify_; }

 private:
  SharedCtx ctx_;
  Verify verify_;
};

}  // namespace

Error openssl_error(std::string_view what) {
  std::array<char, 256> text{};
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return make_error(Errc::internal, std::string(what) + " failed");
  const char* reason = ERR_reason_error_string(code);
  if (reason == nullptr) {
    ERR_error_string_n(code, text.data(), text.size());
    reason = text.data();
  }
  return make_error(Errc::internal, std::string(what) + ": " + reason);
}

Result<std::string> alpn_wire(const std::vector<std::string>& names) {
  std::string wire;
  for (const std::string& name : names) {
    if (name.empty() || name.size() > 255)
      return make_error(Errc::invalid_argument, "an ALPN protocol has 1 to 255 bytes");
    wire += char(name.size());
    wire += name;
  }
  return wire;
}

Result<std::shared_ptr<TlsServerContext>> TlsServerContext::from_files(
    const std::string& certificate, const std::string& key, std::vector<std::string> alpn) {
  ATOLL_TRY_ASSIGN(std::string wire, alpn_wire(alpn));
  auto context = std::make_shared<FileContext>(certificate, key, std::move(wire));
  ATOLL_TRY(context->reload());
  return std::shared_ptr<TlsServerContext>(std::move(context));
}

Result<std::shared_ptr<TlsServerContext>> TlsServerContext::by_name(Pick pick,
                                                                    std::vector<std::string> alpn) {
  ATOLL_TRY_ASSIGN(std::string wire, alpn_wire(alpn));
  auto context = std::make_shared<NameContext>(std::move(pick), std::move(wire));
  ATOLL_TRY(context->init());
  return std::shared_ptr<TlsServerContext>(std::move(context));
}

Result<std::shared_ptr<TlsClientContext>> TlsClientContext::create(Verify verify,
                                                                   std::string extra_ca_file) {
  ATOLL_TRY_ASSIGN(SharedCtx ctx, new_ctx(TLS_client_method()));
  if (verify == Verify::peer) {
    SSL_CTX_set_verify(ctx.get(), SSL_VERIFY_PEER, nullptr);
    if (SSL_CTX_set_default_verify_paths(ctx.get()) != 1)
      return openssl_error("load the machine's CA store");
    if (!extra_ca_file.empty() && SSL_CTX_load_verify_file(ctx.get(), extra_ca_file.c_str()) != 1) {
      Error error = openssl_error("the CA file " + extra_ca_file);
      error.code = Errc::invalid_argument;
      return error;
    }
  }
  return std::shared_ptr<TlsClientContext>(std::make_shared<ClientContext>(std::move(ctx), verify));
}

}  // namespace atl::net
