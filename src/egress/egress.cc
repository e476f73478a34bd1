#include "egress/egress.h"

#include "base/log.h"
#include "egress/dns.h"
#include "egress/proxy.h"
#include "sys/fd.h"

namespace atl::egress {
namespace {

using net::asio::ip::tcp;

// A listening address is a good one to connect to, unless it means "all".
Result<std::optional<tcp::endpoint>> parse_ingress(const std::string& text) {
  if (text.empty()) return std::optional<tcp::endpoint>();
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos)
    return make_error(Errc::invalid_argument, "the own ingress must be address:port: " + text);
  ATOLL_TRY_ASSIGN(const dns::Server parsed, dns::parse_server(text));
  auto address = parsed.address();
  if (address.is_unspecified()) {
    if (address.is_v4())
      address = net::asio::ip::address_v4::loopback();
    else
      address = net::asio::ip::address_v6::loopback();
  }
  return std::optional<tcp::endpoint>(tcp::endpoint(address, parsed.port()));
}

Result<std::vector<dns::Server>> find_resolvers(const std::vector<std::string>& given) {
  std::vector<dns::Server> out;
  for (const std::string& text : given) {
    ATOLL_TRY_ASSIGN(dns::Server server, dns::parse_server(text));
    out.push_back(std::move(server));
  }
  if (given.empty()) out = dns::servers_from_resolv_conf("/etc/resolv.conf");
  if (out.empty()) log::warn("no DNS servers are known: sandboxes cannot resolve names");
  return out;
}

}  // namespace

struct Egress::Impl {
  // The coroutines of the io context may outlive this object by a moment; they share the names.
  std::shared_ptr<Names> names = std::make_shared<Names>();
  std::unique_ptr<Resolver> resolver;
  std::unique_ptr<EgressProxy> proxy;
};

Egress::Egress(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Egress::~Egress() { stop(); }

Result<std::unique_ptr<Egress>> Egress::create(net::asio::io_context& io,
                                               runtime::EgressSockets sockets, const Table& table,
                                               EgressOptions options) {
  sys::UniqueFd dns_udp(sockets.dns_udp);
  sys::UniqueFd dns_tcp(sockets.dns_tcp);
  sys::UniqueFd listener(sockets.proxy);
  std::string domain;
  if (!options.own_domain.empty()) {
    auto canonical = canonical_domain(
        std::string_view(options.own_domain).substr(0, options.own_domain.find(':')));
    if (!canonical)
      return make_error(Errc::invalid_argument, "not a domain name: " + options.own_domain);
    domain = std::move(*canonical);
  }
  ProxyOptions proxy_options;
  proxy_options.own_domain = domain;
  ATOLL_TRY_ASSIGN(proxy_options.own_ingress, parse_ingress(options.own_ingress));
  ATOLL_TRY_ASSIGN(proxy_options.own_ingress_plain, parse_ingress(options.own_ingress_plain));
  std::shared_ptr<Interceptor> interceptor;
  if (!options.home.empty()) {
    ATOLL_TRY_ASSIGN(interceptor, Interceptor::create(options.home, options.extra_ca));
  }
  ATOLL_TRY_ASSIGN(auto servers, find_resolvers(options.resolvers));
  auto upstream = std::make_shared<dns::Upstream>(std::move(servers));

  auto impl = std::make_unique<Impl>();
  ResolverOptions resolver_options;
  resolver_options.own_domain = domain;
  ATOLL_TRY_ASSIGN(impl->resolver, Resolver::create(io, dns_udp.release(), dns_tcp.release(), table,
                                                    impl->names, upstream, resolver_options));
  ATOLL_TRY_ASSIGN(impl->proxy,
                   EgressProxy::create(io, listener.release(), table, impl->names, upstream,
                                       std::move(interceptor), std::move(proxy_options)));
  return std::unique_ptr<Egress>(new Egress(std::move(impl)));
}

void Egress::drop(Ipv4 address) { impl_->proxy->drop(address); }

void Egress::stop() {
  impl_->resolver->stop();
  impl_->proxy->stop();
}

}  // namespace atl::egress
