#include "cli/tls_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "cli/cert.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

// When either file was last changed; 0: one cannot be seen.
std::int64_t changed_at(const ServerCertificate& files) {
  std::int64_t latest = 0;
  for (const std::string* path : {&files.certificate, &files.key}) {
    struct stat info{};
    if (::stat(path->c_str(), &info) != 0) return 0;
    latest = std::max(latest, info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec);
  }
  return latest;
}

}  // namespace

Result<ServerCertificate> load_certificate(const ServeOptions& options, const Home& home) {
  ServerCertificate out;
  const bool given = !options.tls_cert.empty() || !options.tls_key.empty();
  if (options.domain.empty()) {
    if (given) return make_error(Errc::invalid_argument, "--tls-cert and --tls-key need --domain");
    return out;
  }
  if (given && (options.tls_cert.empty() || options.tls_key.empty()))
    return make_error(Errc::invalid_argument, "--tls-cert and --tls-key belong together");
  out.certificate = options.tls_cert;
  out.key = options.tls_key;
  if (!given) {
    const CertFiles made = cert_files(home.path(), options.domain);
    if (::access(made.certificate.c_str(), R_OK) != 0 || ::access(made.key.c_str(), R_OK) != 0) {
      return make_error(Errc::failed_precondition,
                        "there is no certificate for " + options.domain +
                            ". FIX: make one with `atoll cert " + options.domain +
                            "`, or give the files of yours with --tls-cert and --tls-key");
    }
    out.certificate = made.certificate;
    out.key = made.key;
    ATOLL_TRY_ASSIGN(const std::string ca, read_file(made.ca));
    ATOLL_TRY(write_file(home.ca_file(), ca, 0644, Sync::no));
  }
  ATOLL_TRY_ASSIGN(out.context,
                   net::TlsServerContext::from_files(out.certificate, out.key, {"h2", "http/1.1"}));
  return out;
}

net::Task<void> follow_certificate(const ServerCertificate& certificate) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  std::int64_t seen = changed_at(certificate);
  for (;;) {
    timer.expires_after(std::chrono::minutes(1));
    auto [ec] = co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (ec) co_return;
    const std::int64_t changed = changed_at(certificate);
    if (changed == 0 || changed == seen) continue;
    seen = changed;
    if (auto reloaded = certificate.context->reload(); reloaded.ok()) {
      log::info("the certificate was read again", {{"file", certificate.certificate}});
    } else {
      log::warn("the certificate has changed and cannot be read; restart the server to use it",
                {{"error", reloaded.error().message}});
    }
  }
}

}  // namespace atl::cli
