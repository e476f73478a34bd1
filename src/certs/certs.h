// X.509 certificates: a certificate authority of our own and the server certificates that it signs.
//
// ECDSA P-256 with SHA-256. A Ca is immutable: issue() may run on several threads at once. Errors:
// invalid_argument (a name that cannot be in a certificate, PEM that does not parse), internal
// (OpenSSL failed).
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atl::certs {

struct Pem {
  std::string certificate;
  std::string key;  // PKCS #8; whoever writes it to a file uses mode 0600
};

// Browsers refuse server certificates that are valid for longer.
constexpr std::chrono::days kMaxLeafLife{397};

class Ca {
 public:
  static Result<Ca> load(const Pem& pem);
  const Pem& pem() const;
  // When the CA itself ends; what it signs never outlives it.
  std::chrono::system_clock::time_point expires() const;
  // A server certificate with a key of its own for DNS names ("*.example.test" too) and IP
  // addresses. At least one name; the first one is the subject.
  Result<Pem> issue(std::span<const std::string> names,
                    std::chrono::days life = kMaxLeafLife) const;

 private:
  friend Result<Ca> make_ca(std::string_view name, std::chrono::days life);
  struct Impl;
  explicit Ca(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// A new self-signed CA; `name` is what people see in a certificate store (at most 64 bytes).
Result<Ca> make_ca(std::string_view name, std::chrono::days life = std::chrono::days(3650));
inline Result<Pem> issue(const Ca& ca, std::span<const std::string> names) {
  return ca.issue(names);
}

// The names (DNS and IP) of the first certificate in `certificate`, and its end.
struct Facts {
  std::vector<std::string> names;
  std::chrono::system_clock::time_point expires;
};
Result<Facts> inspect(std::string_view certificate);
// True if the first certificate in `certificate` bears a signature of this CA.
bool signed_by(std::string_view certificate, const Ca& ca);

}  // namespace atl::certs
