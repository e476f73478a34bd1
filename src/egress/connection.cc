#include "egress/connection.h"

#include <algorithm>

#include "base/log.h"
#include "egress/dial.h"
#include "egress/dns.h"
#include "egress/first_bytes.h"
#include "egress/socks.h"
#include "runtime/spec.h"

namespace atl::egress {
namespace {

namespace asio = net::asio;
using asio::ip::tcp;
using StreamPtr = std::unique_ptr<net::Stream>;

constexpr std::uint16_t kHttp = 80;
constexpr std::uint16_t kHttps = 443;

Error denied(std::string why) { return make_error(Errc::permission_denied, std::move(why)); }

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<const Surroundings> around, std::shared_ptr<Session> session,
             Destination to)
      : around_(std::move(around)), session_(std::move(session)), to_(to) {}

  net::Task<void> run(StreamPtr client) {
    session_->hold_client(client.get());
    if (to_.address == runtime::kOwnIngressAddress) {
      auto serving = run_own(std::move(client));
      co_await std::move(serving);
    } else if (is_never_reachable(to_.address)) {
      refuse(*client, "the address is never reachable");
    } else {
      auto serving = run_out(std::move(client));
      co_await std::move(serving);
    }
  }

 private:
  const ProxyOptions& options() const { return around_->options; }

  // The policy of now; null: the sandbox is gone.
  std::shared_ptr<const Entry> entry() const {
    auto found = around_->table.find(session_->peer);
    return found && found->sandbox == session_->sandbox ? found : nullptr;
  }

  void refuse(net::Stream& client, std::string_view why) {
    log::debug("egress: refused", {{"sandbox", session_->sandbox.str()},
                                   {"address", to_.address.str()},
                                   {"port", std::to_string(to_.port)},
                                   {"why", why}});
    client.reset();
    session_->hold_client(nullptr);
  }

  // ---- to the world ----

  net::Task<void> run_out(StreamPtr client) {
    const auto entry = this->entry();
    if (!entry) co_return refuse(*client, "the sandbox is gone");
    const Policy& policy = entry->policy;
    const bool by_address = policy.allows(to_.address);
    const bool web = to_.port == kHttp || to_.port == kHttps;
    if (!by_address && !web) co_return refuse(*client, "the address is not allowed");
    if (by_address && (!web || policy.rules.empty())) {
      auto passing = pass(std::move(client), {}, {});
      co_return co_await std::move(passing);
    }
    auto reading = read_first_bytes(
        *client, by_address ? options().first_bytes_if_allowed : options().first_bytes);
    auto first = co_await std::move(reading);
    if (!first.ok()) co_return refuse(*client, first.error().message);

    if (first->kind == FirstBytes::Kind::http) {
      auto relaying = relay_http(
          session_, put_back(std::move(client), std::move(first->bytes)), to_.port,
          [self = shared_from_this()](std::optional<std::string> host) {
            return self->check_request(std::move(host));
          },
          [self = shared_from_this()] { return self->open_out(self->first_name_); });
      co_return co_await std::move(relaying);
    }
    if (first->kind == FirstBytes::Kind::other || !first->server_name) {
      if (!by_address) co_return refuse(*client, "no name by which it could be allowed");
      auto passing = pass(std::move(client), std::move(first->bytes), {});
      co_return co_await std::move(passing);
    }
    const std::string name = *first->server_name;
    if (!by_address) {
      if (!policy.allows_domain(name)) co_return refuse(*client, "the name is not allowed");
      auto asking = dns_gave(name);
      if (!(co_await std::move(asking)))
        co_return refuse(*client, "DNS did not give this address for the name");
    }
    const std::string by_name = by_address ? std::string() : name;
    if (policy.rule_for(name) != nullptr) {
      auto intercepting =
          intercept(std::move(client), std::move(first->bytes), name,
                    [self = shared_from_this(), by_name] { return self->open_out(by_name); });
      co_return co_await std::move(intercepting);
    }
    auto passing = pass(std::move(client), std::move(first->bytes), by_name);
    co_await std::move(passing);
  }

  // Bytes both ways, unseen.
  net::Task<void> pass(StreamPtr client, std::string first, std::string by_name) {
    auto opening = open_out(std::move(by_name));
    auto upstream = co_await std::move(opening);
    if (!upstream.ok()) co_return refuse(*client, upstream.error().message);
    auto relaying = relay_bytes(session_, *client, **upstream, std::move(first), {});
    co_await std::move(relaying);
  }

  // A plain HTTP request to the world. A header of a rule must not go to whoever only says that he
  // is the host: DNS must say it, too.
  net::Task<Result<Permit>> check_request(std::optional<std::string> host) {
    const auto entry = this->entry();
    if (!entry) co_return make_error(Errc::unavailable, "the sandbox is gone");
    const Policy& policy = entry->policy;
    const bool by_address = policy.allows(to_.address);
    if (!host) {
      if (!by_address) co_return denied("the address " + to_.address.str() + " is not allowed");
      co_return Permit{};
    }
    const HeaderRule* rule = policy.rule_for(*host);
    if (!by_address && !policy.allows_domain(*host))
      co_return denied("the host " + *host + " is not allowed by the network policy");
    if (!by_address || rule != nullptr) {
      auto asking = dns_gave(*host);
      if (!(co_await std::move(asking))) {
        co_return denied("DNS did not give the address " + to_.address.str() + " for the host " +
                         *host);
      }
    }
    // An upstream proxy may find another address for another name.
    if (policy.upstream && !by_address) {
      if (first_name_.empty()) first_name_ = *host;
      if (first_name_ != *host) co_return denied("this connection is for the host " + first_name_);
    }
    Permit permit;
    if (rule != nullptr) permit.headers = rule->headers;
    co_return permit;
  }

  // Did DNS give this sandbox this address for the name? What is not remembered (a restart, a long
  // pause) is asked for again. The name is one that the policy names.
  net::Task<bool> dns_gave(std::string name) {
    if (around_->names->gave(session_->sandbox, name, to_.address)) co_return true;
    auto looking = addresses_of(around_->upstream, name);
    const auto addresses = co_await std::move(looking);
    if (!addresses.ok() ||
        std::find(addresses->begin(), addresses->end(), to_.address) == addresses->end())
      co_return false;
    around_->names->remember(session_->sandbox, session_->peer, name, to_.address,
                             std::chrono::seconds(0));
    co_return true;
  }

  // ---- to the server's own ingress ----

  bool may_reach_own(std::string_view name) const {
    const auto entry = this->entry();
    return entry && is_own_name(options().own_domain, name) && entry->policy.resolves(name);
  }

  net::Task<void> run_own(StreamPtr client) {
    if (options().own_domain.empty()) co_return refuse(*client, "there is no own domain");
    auto reading = read_first_bytes(*client, options().first_bytes);
    auto first = co_await std::move(reading);
    if (!first.ok()) co_return refuse(*client, first.error().message);
    if (first->kind == FirstBytes::Kind::http) {
      auto relaying = relay_http(
          session_, put_back(std::move(client), std::move(first->bytes)), to_.port,
          [self = shared_from_this()](std::optional<std::string> host) {
            return self->check_own_request(std::move(host));
          },
          [self = shared_from_this()] {
            return self->open_own(self->options().own_ingress_plain);
          });
      co_return co_await std::move(relaying);
    }
    if (first->kind != FirstBytes::Kind::tls || !first->server_name ||
        !may_reach_own(*first->server_name))
      co_return refuse(*client, "not a name of the own domain, or not allowed");
    const std::string name = *first->server_name;
    const auto entry = this->entry();
    if (entry && entry->policy.rule_for(name) != nullptr) {
      auto intercepting = intercept(
          std::move(client), std::move(first->bytes), name,
          [self = shared_from_this()] { return self->open_own(self->options().own_ingress); });
      co_return co_await std::move(intercepting);
    }
    auto opening = open_own(options().own_ingress);
    auto upstream = co_await std::move(opening);
    if (!upstream.ok()) co_return refuse(*client, upstream.error().message);
    auto relaying = relay_bytes(session_, *client, **upstream, std::move(first->bytes), {});
    co_await std::move(relaying);
  }

  net::Task<Result<Permit>> check_own_request(std::optional<std::string> host) {
    if (!host || !may_reach_own(*host))
      co_return denied("the host is not one of this server, or not allowed by the network policy");
    co_return headers_for(*host);
  }

  Permit headers_for(std::string_view name) const {
    Permit permit;
    const auto entry = this->entry();
    const HeaderRule* rule = entry ? entry->policy.rule_for(name) : nullptr;
    if (rule != nullptr) permit.headers = rule->headers;
    return permit;
  }

  // ---- interception ----

  net::Task<void> intercept(StreamPtr client, std::string first, std::string name,
                            OpenUpstream open) {
    if (!around_->interceptor) co_return refuse(*client, "interception is not set up");
    session_->hold_client(nullptr);
    auto accepting = around_->interceptor->accept(std::move(client), std::move(first));
    auto tls = co_await std::move(accepting);
    if (!tls.ok()) {
      log::debug("egress: TLS with the sandbox failed",
                 {{"sandbox", session_->sandbox.str()}, {"error", tls.error().message}});
      co_return;
    }
    auto relaying = relay_http(
        session_, std::move(*tls), to_.port,
        [self = shared_from_this(), name](std::optional<std::string> host) {
          return self->check_intercepted(name, std::move(host));
        },
        [self = shared_from_this(), name, open = std::move(open)] {
          return self->open_tls(open, name);
        });
    co_await std::move(relaying);
  }

  // Inside TLS: only the host that the handshake was for, and still allowed.
  net::Task<Result<Permit>> check_intercepted(std::string name, std::optional<std::string> host) {
    if (host != name)
      co_return denied("the request is for another host than the TLS connection (" + name + ")");
    const auto entry = this->entry();
    if (!entry) co_return make_error(Errc::unavailable, "the sandbox is gone");
    const bool allowed =
        to_.address == runtime::kOwnIngressAddress
            ? may_reach_own(name)
            : entry->policy.allows(to_.address) || entry->policy.allows_domain(name);
    if (!allowed) co_return denied("the host " + name + " is not allowed by the network policy");
    co_return headers_for(name);
  }

  net::Task<Result<StreamPtr>> open_tls(OpenUpstream open, std::string name) {
    auto opening = open();
    ATOLL_CO_TRY_ASSIGN(StreamPtr plain, co_await std::move(opening));
    auto connecting = around_->interceptor->connect(std::move(plain), std::move(name));
    co_return co_await std::move(connecting);
  }

  // ---- outgoing connections ----

  net::Task<Result<StreamPtr>> open_own(std::optional<tcp::endpoint> ingress) {
    if (!ingress)
      co_return make_error(Errc::unavailable, "the server does not serve this protocol");
    auto connecting = options().connect(*ingress, options().connect_time);
    co_return co_await std::move(connecting);
  }

  // To the original destination: straight, or through the sandbox's upstream proxy (by name, if the
  // name is what allowed it).
  net::Task<Result<StreamPtr>> open_out(std::string by_name) {
    const auto entry = this->entry();
    if (!entry) co_return make_error(Errc::unavailable, "the sandbox is gone");
    if (!entry->policy.upstream) {
      auto connecting = options().connect(endpoint(to_.address, to_.port), options().connect_time);
      co_return co_await std::move(connecting);
    }
    const UpstreamProxy& proxy = *entry->policy.upstream;
    auto finding = find_proxy(proxy.host);
    ATOLL_CO_TRY_ASSIGN(const Ipv4 address, co_await std::move(finding));
    auto connecting = options().connect(endpoint(address, proxy.port), options().connect_time);
    ATOLL_CO_TRY_ASSIGN(StreamPtr stream, co_await std::move(connecting));
    stream->set_read_timeout(options().connect_time);
    stream->set_write_timeout(options().connect_time);
    auto asking =
        socks_connect(*stream, proxy, SocksTarget{std::move(by_name), to_.address, to_.port});
    ATOLL_CO_TRY(co_await std::move(asking));
    stream->set_read_timeout(std::nullopt);
    stream->set_write_timeout(std::nullopt);
    co_return std::move(stream);
  }

  net::Task<Result<Ipv4>> find_proxy(std::string host) {
    std::vector<Ipv4> found;
    if (const auto literal = Ipv4::parse(host)) {
      found.push_back(*literal);
    } else {
      auto looking = addresses_of(around_->upstream, host);
      ATOLL_CO_TRY_ASSIGN(found, co_await std::move(looking));
    }
    std::erase_if(found, is_never_reachable);
    if (found.empty())
      co_return make_error(Errc::unavailable, "the egress proxy has no public address");
    co_return found.front();
  }

  static tcp::endpoint endpoint(Ipv4 address, std::uint16_t port) {
    return tcp::endpoint(asio::ip::address_v4(address.value), port);
  }

  const std::shared_ptr<const Surroundings> around_;
  const std::shared_ptr<Session> session_;
  const Destination to_;
  std::string first_name_;  // of the first request, where an upstream proxy goes by it
};

}  // namespace

net::Task<void> carry_connection(std::shared_ptr<const Surroundings> around,
                                 std::shared_ptr<Session> session, StreamPtr client,
                                 Destination to) {
  auto connection = std::make_shared<Connection>(std::move(around), std::move(session), to);
  auto running = connection->run(std::move(client));
  co_await std::move(running);
}

}  // namespace atl::egress
