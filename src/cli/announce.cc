#include "cli/announce.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "cli/home.h"

namespace atl::cli {

Addresses addresses_of(const Sockets& sockets, const ServeOptions& options) {
  Addresses out;
  out.http = "http://" + reachable(sockets.main.address);
  if (sockets.tls) {
    const std::string port = sockets.tls->address.substr(sockets.tls->address.rfind(':'));
    out.domain = port == ":443" ? options.domain : options.domain + port;
    out.https = "https://api." + out.domain;
    out.tls = reachable(sockets.tls->address);
    if (options.tls_cert.empty()) out.ca_file = Home::at(options.home).ca_file();
  }
  if (sockets.metrics) out.metrics = "http://" + reachable(sockets.metrics->address) + "/metrics";
  if (sockets.executor) out.executor = "http://" + reachable(sockets.executor->address);
  return out;
}

void announce(const Addresses& addresses, const std::string& key) {
  const bool tls = !addresses.domain.empty();
  if (tls) {
    std::printf("export E2B_DOMAIN=%s\n", addresses.domain.c_str());
    if (!addresses.ca_file.empty()) {
      std::printf("export NODE_EXTRA_CA_CERTS=%s\nexport SSL_CERT_FILE=%s\n",
                  addresses.ca_file.c_str(), addresses.ca_file.c_str());
    }
  } else {
    std::printf("export E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\n", addresses.http.c_str(),
                addresses.http.c_str());
  }
  std::printf("export E2B_API_KEY=%s\n", key.c_str());
  std::fflush(stdout);
  std::fprintf(
      stderr,
      "\nAtoll serves on %s%s%s. With the exports above in the environment, an example:\n\n"
      "  npm install e2b && node --input-type=module -e \\\n"
      "    \"import { Sandbox } from 'e2b'; const s = await Sandbox.create(); "
      "console.log((await s.commands.run('uname -a')).stdout); await s.kill()\"\n\n",
      addresses.http.c_str(), tls ? " and " : "", addresses.https.c_str());
  if (!addresses.executor.empty()) {
    std::fprintf(stderr, "The executor API is at %s.\n\n", addresses.executor.c_str());
  }
  // Whoever reads our stdout (`eval "$(atoll up --detach)"`) sees its end now.
  if (const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC); null >= 0) {
    ::dup2(null, STDOUT_FILENO);
    ::close(null);
  }
}

}  // namespace atl::cli
