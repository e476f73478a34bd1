#include "certs/certs.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <ctime>

namespace atl::certs {
namespace {

using Clock = std::chrono::system_clock;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Cert = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Number = std::unique_ptr<BIGNUM, Deleter<BN_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Deleter<GENERAL_NAMES_free>>;
using Name = std::unique_ptr<GENERAL_NAME, Deleter<GENERAL_NAME_free>>;

constexpr std::chrono::hours kBackdated{1};  // for clients whose clock is a little behind

Error openssl_error(std::string_view what) {
  std::array<char, 256> text{};
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return make_error(Errc::internal, std::string(what) + " failed");
  ERR_error_string_n(code, text.data(), text.size());
  return make_error(Errc::internal, std::string(what) + ": " + text.data());
}

Result<Key> new_key() {
  Key key(EVP_EC_gen("P-256"));
  if (!key) return openssl_error("make a key");
  return key;
}

std::string drain(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, std::size_t(size));
}

Result<Pem> to_pem(X509* cert, EVP_PKEY* key) {
  Bio cert_out(BIO_new(BIO_s_mem()));
  Bio key_out(BIO_new(BIO_s_secmem()));
  if (!cert_out || !key_out || PEM_write_bio_X509(cert_out.get(), cert) != 1 ||
      PEM_write_bio_PKCS8PrivateKey(key_out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) !=
          1) {
    return openssl_error("write PEM");
  }
  return Pem{drain(cert_out.get()), drain(key_out.get())};
}

Result<Cert> parse_cert(std::string_view text) {
  Bio in(BIO_new_mem_buf(text.data(), int(text.size())));
  Cert cert(in ? PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr) : nullptr);
  if (!cert) {
    ERR_clear_error();
    return make_error(Errc::invalid_argument, "not a certificate in PEM");
  }
  return cert;
}

Result<Key> parse_key(std::string_view text) {
  Bio in(BIO_new_mem_buf(text.data(), int(text.size())));
  // A key with a passphrase is refused instead of asking on the terminal.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  Key key(in ? PEM_read_bio_PrivateKey(in.get(), nullptr, no_passphrase, nullptr) : nullptr);
  if (!key) {
    ERR_clear_error();
    return make_error(Errc::invalid_argument, "not a private key in PEM (without passphrase)");
  }
  return key;
}

bool is_dns_name(std::string_view name) {
  if (name.starts_with("*.")) name.remove_prefix(2);
  if (name.empty() || name.size() > 253) return false;
  while (!name.empty()) {
    const std::size_t dot = name.find('.');
    const std::string_view label = name.substr(0, dot);
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-')
      return false;
    for (char c : label) {
      const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '-' || c == '_';
      if (!fine) return false;
    }
    if (dot == std::string_view::npos) break;
    name.remove_prefix(dot + 1);
    if (name.empty()) return false;
  }
  return true;
}

Result<Name> general_name(const std::string& name) {
  std::array<unsigned char, 16> address{};
  int length = 0;
  if (inet_pton(AF_INET, name.c_str(), address.data()) == 1) length = 4;
  if (length == 0 && inet_pton(AF_INET6, name.c_str(), address.data()) == 1) length = 16;
  Name out(GENERAL_NAME_new());
  ASN1_STRING* value =
      length > 0 ? static_cast<ASN1_STRING*>(ASN1_OCTET_STRING_new()) : ASN1_IA5STRING_new();
  if (!out || value == nullptr) {
    ASN1_STRING_free(value);
    return openssl_error("make a name");
  }
  GENERAL_NAME_set0_value(out.get(), length > 0 ? GEN_IPADD : GEN_DNS, value);
  if (length == 0 && !is_dns_name(name))
    return make_error(Errc::invalid_argument,
                      "not a DNS name or IP address: " + name.substr(0, 253));
  const void* bytes = length > 0 ? static_cast<const void*>(address.data()) : name.data();
  if (ASN1_STRING_set(value, bytes, length > 0 ? length : int(name.size())) != 1)
    return openssl_error("set a name");
  return out;
}

Result<void> add_extension(X509* cert, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  X509V3_set_ctx_nodb(&context);
  Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  if (!extension || X509_add_ext(cert, extension.get(), -1) != 1)
    return openssl_error("add an extension");
  return {};
}

// What all certificates have in common: version, random serial, life, subject, public key.
Result<Cert> begin(EVP_PKEY* key, std::string_view subject, Clock::time_point until) {
  Cert cert(X509_new());
  Number serial(BN_new());
  if (!cert || !serial || X509_set_version(cert.get(), X509_VERSION_3) != 1 ||
      BN_rand(serial.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) != 1 ||
      BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(cert.get())) == nullptr) {
    return openssl_error("begin a certificate");
  }
  const auto now = Clock::now();
  if (ASN1_TIME_set(X509_getm_notBefore(cert.get()), Clock::to_time_t(now - kBackdated)) ==
          nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(cert.get()), Clock::to_time_t(until)) == nullptr) {
    return openssl_error("set the life of a certificate");
  }
  X509_NAME* name = X509_get_subject_name(cert.get());
  const auto* bytes = reinterpret_cast<const unsigned char*>(subject.data());
  if (X509_NAME_add_entry_by_NID(name, NID_organizationName, MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>("Atoll"), -1, -1, 0) != 1 ||
      X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, bytes, int(subject.size()),
                                 -1, 0) != 1 ||
      X509_set_pubkey(cert.get(), key) != 1) {
    return openssl_error("set the subject of a certificate");
  }
  return cert;
}

Clock::time_point end_of(const X509* cert) {
  std::tm tm{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) != 1) return {};
  return Clock::from_time_t(timegm(&tm));
}

}  // namespace

struct Ca::Impl {
  Cert cert;
  Key key;
  Pem pem;
};

Result<Ca> make_ca(std::string_view name, std::chrono::days life) {
  if (name.empty() || name.size() > 64)
    return make_error(Errc::invalid_argument, "the name of a CA has 1 to 64 bytes");
  ATOLL_TRY_ASSIGN(Key key, new_key());
  ATOLL_TRY_ASSIGN(Cert cert, begin(key.get(), name, Clock::now() + life));
  X509* self = cert.get();
  if (X509_set_issuer_name(self, X509_get_subject_name(self)) != 1)
    return openssl_error("set the issuer");
  ATOLL_TRY(add_extension(self, self, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  ATOLL_TRY(add_extension(self, self, NID_key_usage, "critical,keyCertSign,cRLSign"));
  ATOLL_TRY(add_extension(self, self, NID_subject_key_identifier, "hash"));
  ATOLL_TRY(add_extension(self, self, NID_authority_key_identifier, "keyid:always"));
  if (X509_sign(self, key.get(), EVP_sha256()) == 0) return openssl_error("sign the CA");
  ATOLL_TRY_ASSIGN(Pem pem, to_pem(self, key.get()));
  return Ca(
      std::make_shared<const Ca::Impl>(Ca::Impl{std::move(cert), std::move(key), std::move(pem)}));
}

Result<Ca> Ca::load(const Pem& pem) {
  ATOLL_TRY_ASSIGN(Cert cert, parse_cert(pem.certificate));
  ATOLL_TRY_ASSIGN(Key key, parse_key(pem.key));
  if (X509_check_private_key(cert.get(), key.get()) != 1) {
    ERR_clear_error();
    return make_error(Errc::invalid_argument, "the key does not belong to the CA's certificate");
  }
  if (X509_check_ca(cert.get()) == 0)
    return make_error(Errc::invalid_argument, "the certificate is not that of a CA");
  return Ca(std::make_shared<const Impl>(Impl{std::move(cert), std::move(key), pem}));
}

const Pem& Ca::pem() const { return impl_->pem; }

Clock::time_point Ca::expires() const { return end_of(impl_->cert.get()); }

Result<Pem> Ca::issue(std::span<const std::string> names, std::chrono::days life) const {
  if (names.empty() || names.size() > 100)
    return make_error(Errc::invalid_argument, "a certificate needs 1 to 100 names");
  Names alternatives(GENERAL_NAMES_new());
  if (!alternatives) return openssl_error("make names");
  for (const std::string& text : names) {
    ATOLL_TRY_ASSIGN(Name name, general_name(text));
    if (sk_GENERAL_NAME_push(alternatives.get(), name.get()) == 0)
      return openssl_error("add a name");
    (void)name.release();
  }
  // A common name holds at most 64 bytes; clients look at the alternative names only.
  const std::string_view subject = names[0].size() <= 64 ? std::string_view(names[0]) : "server";
  const auto until = std::min(
      {Clock::now() - kBackdated + life, Clock::now() - kBackdated + kMaxLeafLife, expires()});
  ATOLL_TRY_ASSIGN(Key key, new_key());
  ATOLL_TRY_ASSIGN(Cert cert, begin(key.get(), subject, until));
  X509* leaf = cert.get();
  X509* ca = impl_->cert.get();
  if (X509_set_issuer_name(leaf, X509_get_subject_name(ca)) != 1)
    return openssl_error("set the issuer");
  ATOLL_TRY(add_extension(leaf, ca, NID_basic_constraints, "critical,CA:FALSE"));
  ATOLL_TRY(add_extension(leaf, ca, NID_key_usage, "critical,digitalSignature"));
  ATOLL_TRY(add_extension(leaf, ca, NID_ext_key_usage, "serverAuth"));
  ATOLL_TRY(add_extension(leaf, ca, NID_subject_key_identifier, "hash"));
  ATOLL_TRY(add_extension(leaf, ca, NID_authority_key_identifier, "keyid:always"));
  if (X509_add1_ext_i2d(leaf, NID_subject_alt_name, alternatives.get(), 0, X509V3_ADD_DEFAULT) != 1)
    return openssl_error("add the names");
  if (X509_sign(leaf, impl_->key.get(), EVP_sha256()) == 0)
    return openssl_error("sign a certificate");
  return to_pem(leaf, key.get());
}

Result<Facts> inspect(std::string_view certificate) {
  ATOLL_TRY_ASSIGN(Cert cert, parse_cert(certificate));
  Facts facts;
  facts.expires = end_of(cert.get());
  Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(cert.get(), NID_subject_alt_name, nullptr, nullptr)));
  const int count = names ? sk_GENERAL_NAME_num(names.get()) : 0;
  for (int i = 0; i < count; ++i) {
    int type = 0;
    const auto* value = static_cast<const ASN1_STRING*>(
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &type));
    const unsigned char* data = ASN1_STRING_get0_data(value);
    const auto size = std::size_t(ASN1_STRING_length(value));
    if (type == GEN_DNS) facts.names.emplace_back(reinterpret_cast<const char*>(data), size);
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (type == GEN_IPADD && (size == 4 || size == 16) &&
        inet_ntop(size == 4 ? AF_INET : AF_INET6, data, text.data(), text.size()) != nullptr)
      facts.names.emplace_back(text.data());
  }
  return facts;
}

bool signed_by(std::string_view certificate, const Ca& ca) {
  auto cert = parse_cert(certificate);
  auto issuer = parse_cert(ca.pem().certificate);
  if (!cert.ok() || !issuer.ok()) return false;
  const bool fine = X509_verify(cert->get(), X509_get0_pubkey(issuer->get())) == 1;
  ERR_clear_error();
  return fine;
}

}  // namespace atl::certs
