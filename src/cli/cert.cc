#include "cli/cert.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/json.h"
#include "certs/certs.h"
#include "cli/home.h"

namespace atl::cli {
namespace {

using std::chrono::days;
using Clock = std::chrono::system_clock;

constexpr days kRenewBefore{30};

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// The domain becomes part of file names and of a certificate. Names of one label are those of other
// files beside it: ca.key, default.key.
Result<std::string> checked_domain(const std::string& domain) {
  std::string out;
  for (char c : domain) out += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  const bool fine =
      !out.empty() && out.size() <= 200 && out.front() != '.' && out.front() != '-' &&
      out.back() != '.' && out.find("..") == std::string::npos &&
      out.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-") == std::string::npos;
  if (!fine || (out.find('.') == std::string::npos && out != "localhost"))
    return make_error(Errc::invalid_argument,
                      "not a domain: '" + domain + "' (example: atoll cert sandboxes.example)");
  return out;
}

// The key first: a certificate without its key is never seen by a reader of both.
Result<void> write_pair(const certs::Pem& pem, const std::string& certificate,
                        const std::string& key) {
  ATOLL_TRY(write_file(key, pem.key, 0600));
  return write_file(certificate, pem.certificate, 0644);
}

// Two commands at once must not make two CAs.
class Lock {
 public:
  static Result<Lock> take(const std::string& dir) {
    const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno_error("open " + dir);
    Lock lock(fd);
    if (::flock(fd, LOCK_EX) != 0) return errno_error("lock " + dir);
    return lock;
  }
  Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Lock& operator=(Lock&&) = delete;
  ~Lock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  explicit Lock(int fd) : fd_(fd) {}
  int fd_;
};

Result<certs::Ca> ensure_ca(const std::string& certificate, const std::string& key) {
  if (exists(certificate) && exists(key)) {
    ATOLL_TRY_ASSIGN(std::string certificate_text, read_file(certificate));
    ATOLL_TRY_ASSIGN(std::string key_text, read_file(key));
    auto ca = certs::Ca::load({std::move(certificate_text), std::move(key_text)});
    if (!ca.ok()) return std::move(ca).error().with("the CA in " + certificate);
    if (ca->expires() > Clock::now() + kRenewBefore) return ca;
  } else if (exists(certificate) || exists(key)) {
    return make_error(Errc::failed_precondition,
                      "one of " + certificate + " and " + key +
                          " is missing. FIX: put it back, or remove both to make a new CA (clients "
                          "then have to trust that one)");
  }
  char host[65] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string name = ("Atoll development CA " + std::string(host)).substr(0, 64);
  ATOLL_TRY_ASSIGN(certs::Ca ca, certs::make_ca(name));
  ATOLL_TRY(write_pair(ca.pem(), certificate, key));
  return ca;
}

bool still_good(const CertFiles& files, const certs::Ca& ca,
                const std::vector<std::string>& names) {
  if (!exists(files.key)) return false;
  auto text = read_file(files.certificate);
  if (!text.ok()) return false;
  auto facts = certs::inspect(*text);
  return facts.ok() && facts->expires > Clock::now() + kRenewBefore && facts->names == names &&
         certs::signed_by(*text, ca);
}

}  // namespace

CertFiles cert_files(const std::string& home, const std::string& domain) {
  const std::string dir = Home::at(home).keys() + "/";
  return {dir + "ca.pem", dir + domain + ".pem", dir + domain + ".key"};
}

Result<CertFiles> ensure_cert(const CertOptions& options) {
  ATOLL_TRY_ASSIGN(const std::string domain, checked_domain(options.domain));
  const CertFiles files = cert_files(options.home, domain);
  const std::string keys = Home::at(options.home).keys();
  ATOLL_TRY_ASSIGN(const Lock lock, Lock::take(keys));
  ATOLL_TRY_ASSIGN(const certs::Ca ca, ensure_ca(files.ca, keys + "/ca.key"));
  std::vector<std::string> names = {domain, "*." + domain};
  for (const char* local : {"localhost", "127.0.0.1", "::1"})
    if (domain != local) names.emplace_back(local);
  if (options.renew || !still_good(files, ca, names)) {
    ATOLL_TRY_ASSIGN(const certs::Pem leaf, ca.issue(names));
    ATOLL_TRY(write_pair(leaf, files.certificate, files.key));
  }
  return files;
}

Result<int> cert_command(const CertOptions& options) {
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY_ASSIGN(const Home home, Home::open(options.home, user));
  // The files must be the server's, so this command works as the server's user too.
  ATOLL_TRY(become(user));
  CertOptions at = options;
  at.home = home.path();
  ATOLL_TRY_ASSIGN(const CertFiles files, ensure_cert(at));
  ATOLL_TRY_ASSIGN(const std::string text, read_file(files.certificate));
  ATOLL_TRY_ASSIGN(const certs::Facts facts, certs::inspect(text));
  const auto left = std::chrono::duration_cast<days>(facts.expires - Clock::now());
  if (options.json) {
    json::object o;
    o["ca"] = files.ca;
    o["certificate"] = files.certificate;
    o["key"] = files.key;
    o["daysLeft"] = left.count();
    json::array names;
    for (const std::string& name : facts.names) names.push_back(json::value(name));
    o["names"] = std::move(names);
    fmt::print("{}\n", json::serialize(o));
    return 0;
  }
  fmt::print("certificate  {} (good for {} days)\n", files.certificate, left.count());
  fmt::print("key          {}\n", files.key);
  fmt::print("CA           {}\n\n", files.ca);
  fmt::print("Clients must trust the CA. It is readable by the server's user only: copy it out.\n");
  fmt::print("  install -m 644 {} ./atoll-ca.pem\n", files.ca);
  fmt::print("  export NODE_EXTRA_CA_CERTS=$PWD/atoll-ca.pem   # Node\n");
  fmt::print("  export SSL_CERT_FILE=$PWD/atoll-ca.pem         # Python, OpenSSL\n");
  fmt::print("  curl --cacert atoll-ca.pem https://api.{}/health\n", facts.names.front());
  return 0;
}

}  // namespace atl::cli
