#include "egress/intercept.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <unordered_map>

#include "certs/certs.h"
#include "sys/fd.h"

namespace atl::egress {
namespace {

constexpr std::chrono::milliseconds kHandshake{10'000};
constexpr std::size_t kMaxFile = 64 * 1024;
constexpr std::size_t kMaxLeaves = 1024;
constexpr std::chrono::days kLeafLife{30};
constexpr std::chrono::days kRenewLeaf{7};
constexpr std::chrono::days kRenewCa{60};

std::mutex g_files;  // one maker at a time

Result<std::string> read_file(const std::string& path) {
  sys::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return errno_error(path);
  std::string out(kMaxFile, '\0');
  const ssize_t n = ::read(fd.get(), out.data(), out.size());
  if (n < 0) return errno_error(path);
  out.resize(std::size_t(n));
  return out;
}

// Whole or not at all: a new file takes the place of the old one.
Result<void> replace_file(const std::string& path, std::string_view text, mode_t mode) {
  const std::string draft = path + ".new";
  ::unlink(draft.c_str());
  sys::UniqueFd fd(
      ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return errno_error(draft);
  if (::write(fd.get(), text.data(), text.size()) != ssize_t(text.size()) || ::fsync(fd.get()) != 0)
    return errno_error(draft);
  if (::rename(draft.c_str(), path.c_str()) != 0) return errno_error(path);
  return {};
}

Result<certs::Ca> load_or_make(const std::string& home) {
  const std::string certificate = home + "/keys/egress-ca.pem";
  const std::string key = home + "/keys/egress-ca.key";
  std::lock_guard lock(g_files);
  auto certificate_text = read_file(certificate);
  auto key_text = read_file(key);
  if (certificate_text.ok() && key_text.ok()) {
    auto ca = certs::Ca::load({*certificate_text, *key_text});
    if (ca.ok() && ca->expires() > std::chrono::system_clock::now() + kRenewCa) return ca;
  }
  ATOLL_TRY_ASSIGN(certs::Ca made, certs::make_ca("Atoll egress interception"));
  ATOLL_TRY(replace_file(key, made.pem().key, 0600));
  ATOLL_TRY(replace_file(certificate, made.pem().certificate, 0644));
  return made;
}

// Certificates by name, made once and kept for a while. Names are those of rules or below their
// wildcards; a sandbox could ask for many, so the cache is bounded.
class Leaves {
 public:
  explicit Leaves(certs::Ca ca) : ca_(std::move(ca)) {}

  Result<net::TlsServerContext::Pem> get(std::string_view name) {
    const std::string key(name);
    const auto now = std::chrono::system_clock::now();
    {
      std::lock_guard lock(mutex_);
      const auto found = made_.find(key);
      if (found != made_.end() && found->second.until > now) return found->second.pem;
    }
    const std::array<std::string, 1> names = {key};
    ATOLL_TRY_ASSIGN(certs::Pem pem, ca_.issue(names, kLeafLife));
    net::TlsServerContext::Pem out{std::move(pem.certificate), std::move(pem.key)};
    std::lock_guard lock(mutex_);
    if (made_.size() >= kMaxLeaves) made_.clear();
    made_[key] = {out, now + kLeafLife - kRenewLeaf};
    return out;
  }

 private:
  struct Leaf {
    net::TlsServerContext::Pem pem;
    std::chrono::system_clock::time_point until;
  };
  const certs::Ca ca_;
  std::mutex mutex_;
  std::unordered_map<std::string, Leaf> made_;
};

}  // namespace

Result<std::string> ca_pem(const std::string& home) {
  ATOLL_TRY_ASSIGN(const certs::Ca ca, load_or_make(home));
  return ca.pem().certificate;
}

Result<std::shared_ptr<Interceptor>> Interceptor::create(const std::string& home,
                                                         const std::string& extra_ca) {
  ATOLL_TRY_ASSIGN(certs::Ca ca, load_or_make(home));
  auto leaves = std::make_shared<Leaves>(std::move(ca));
  std::shared_ptr<Interceptor> out(new Interceptor());
  ATOLL_TRY_ASSIGN(out->inside_, net::TlsServerContext::by_name(
                                     [leaves](std::string_view name) { return leaves->get(name); },
                                     {"http/1.1"}));
  ATOLL_TRY_ASSIGN(out->outside_,
                   net::TlsClientContext::create(net::TlsClientContext::Verify::peer, extra_ca));
  return out;
}

net::Task<Result<std::unique_ptr<net::Stream>>> Interceptor::accept(
    std::unique_ptr<net::Stream> plain, std::string first) {
  auto accepting = net::accept_tls(std::move(plain), inside_, kHandshake, std::move(first));
  ATOLL_CO_TRY_ASSIGN(net::TlsStream tls, co_await std::move(accepting));
  co_return std::move(tls.stream);
}

net::Task<Result<std::unique_ptr<net::Stream>>> Interceptor::connect(
    std::unique_ptr<net::Stream> plain, std::string name) {
  std::vector<std::string> alpn = {"http/1.1"};
  auto connecting =
      net::connect_tls(std::move(plain), outside_, std::move(name), std::move(alpn), kHandshake);
  ATOLL_CO_TRY_ASSIGN(net::TlsStream tls, co_await std::move(connecting));
  co_return std::move(tls.stream);
}

}  // namespace atl::egress
