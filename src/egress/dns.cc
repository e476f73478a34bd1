#include "egress/dns.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "egress/spawn.h"
#include "net/stream.h"
#include "runtime/spec.h"

namespace atl::egress {
namespace {

namespace asio = net::asio;
using dns::Query;
using dns::Rcode;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kMaxQuery = 4096;
constexpr int kBurst = 64;
constexpr std::size_t kMaxLoads = 16 * 1024;
constexpr std::uint32_t kOwnTtl = 60;
constexpr std::chrono::milliseconds kAcceptPause{100};

// The block that a name below in-addr.arpa asks about, its missing parts zero.
std::optional<Ipv4> reversed_address(std::string_view name) {
  constexpr std::string_view kZone = ".in-addr.arpa";
  if (!name.ends_with(kZone)) return std::nullopt;
  name.remove_suffix(kZone.size());
  Ipv4 address;
  int shift = 24;
  while (!name.empty()) {
    const std::size_t dot = name.rfind('.');
    const std::string_view part = dot == std::string_view::npos ? name : name.substr(dot + 1);
    unsigned value = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || stop != part.data() + part.size() || value > 255 || shift < 0)
      return std::nullopt;
    address.value |= value << shift;
    shift -= 8;
    name = dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
  }
  return address;
}

bool asks_for_private_names(std::string_view name) {
  if (name == "ip6.arpa" || name.ends_with(".ip6.arpa")) return true;
  const auto address = reversed_address(name);
  return address && is_never_reachable(*address);
}

// The answer as the client may see it. Never-reachable addresses are gone; where there were any,
// only the chain of names and the addresses that are left are told.
std::string filtered(const Query& query, const dns::Looked& looked, const dns::Chain& chain) {
  const dns::Answer& answer = looked.answer;
  const auto is_bad = [](const dns::Record& record) {
    return record.type == dns::type::a && is_never_reachable(record.address);
  };
  if (query.question.type != dns::type::a) {
    for (const dns::Record& record : answer.records) {
      if (record.type == dns::type::a || record.type == dns::type::svcb ||
          record.type == dns::type::https)
        return dns::encode_empty(query, Rcode::server_failure);
    }
    return dns::encode_relayed(query, looked.message, answer);
  }
  if (std::none_of(answer.records.begin(), answer.records.end(), is_bad))
    return dns::encode_relayed(query, looked.message, answer);
  std::vector<dns::Record> records = chain.records;
  std::erase_if(records, is_bad);
  return dns::encode_records(query, answer.rcode, records);
}

Result<void> check_family(int fd, int family) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return errno_error("resolver socket");
  if (address.ss_family != family)
    return make_error(Errc::invalid_argument, "resolver socket: not IPv4");
  return {};
}

}  // namespace

bool is_own_name(std::string_view own_domain, std::string_view name) {
  return !own_domain.empty() &&
         (domain_matches(own_domain, name) || domain_matches("*." + std::string(own_domain), name));
}

std::optional<std::string> answer_locally(const Query& query, const Policy& policy,
                                          std::string_view own_domain) {
  namespace type = dns::type;
  const dns::Question& question = query.question;
  if (query.opcode != 0) return dns::encode_empty(query, Rcode::not_implemented);
  if (question.klass != dns::kClassIn || question.type == type::axfr || question.type == type::ixfr)
    return dns::encode_empty(query, Rcode::refused);
  if (!policy.resolves(question.name)) return dns::encode_empty(query, Rcode::refused);
  if (question.type == type::any || question.type == type::opt)
    return dns::encode_empty(query, Rcode::not_implemented);
  if (is_own_name(own_domain, question.name)) {
    if (question.type != type::a) return dns::encode_empty(query, Rcode::no_error);
    dns::Record record;
    record.type = type::a;
    record.ttl = kOwnTtl;
    record.address = runtime::kOwnIngressAddress;
    record.name_wire = question.wire;
    return dns::encode_records(query, Rcode::no_error, {record});
  }
  if (question.type == type::aaaa || question.type == type::https || question.type == type::svcb)
    return dns::encode_empty(query, Rcode::no_error);
  if (asks_for_private_names(question.name)) return dns::encode_empty(query, Rcode::name_error);
  return std::nullopt;
}

net::Task<Result<std::vector<Ipv4>>> addresses_of(std::shared_ptr<dns::Upstream> upstream,
                                                  std::string name) {
  auto wire = dns::encode_name(name);
  if (!wire) co_return make_error(Errc::invalid_argument, "not a host name: " + name);
  dns::Question question{name, std::move(*wire), dns::type::a, dns::kClassIn};
  auto looking = upstream->lookup(std::move(question), false, false);
  ATOLL_CO_TRY_ASSIGN(const dns::Looked looked, co_await std::move(looking));
  dns::Chain chain = dns::follow(looked.answer, name);
  std::erase_if(chain.addresses, is_never_reachable);
  co_return std::move(chain.addresses);
}

struct Resolver::Impl : std::enable_shared_from_this<Impl> {
  Impl(asio::io_context& io, const Table& t, std::shared_ptr<Names> n,
       std::shared_ptr<dns::Upstream> u, ResolverOptions o)
      : strand(asio::make_strand(io)),
        table(t),
        names(std::move(n)),
        upstream(std::move(u)),
        options(std::move(o)),
        udp(strand),
        acceptor(strand) {}

  asio::strand<asio::io_context::executor_type> strand;
  const Table& table;
  const std::shared_ptr<Names> names;
  const std::shared_ptr<dns::Upstream> upstream;
  const ResolverOptions options;

  // All below: on the strand.
  asio::ip::udp::socket udp;
  asio::ip::tcp::acceptor acceptor;
  struct Load {
    std::size_t in_flight = 0;
    std::size_t connections = 0;
    std::chrono::steady_clock::time_point second;  // when the count began
    std::size_t queries = 0;
  };
  std::unordered_map<std::uint32_t, Load> loads;  // by peer
  std::size_t in_flight = 0;
  std::size_t connections = 0;
  bool stopped = false;

  // Where a datagram came from, and by which of our addresses.
  struct Peer {
    sockaddr_in address{};
    in_pktinfo via{};
    Ipv4 ip() const { return Ipv4{ntohl(address.sin_addr.s_addr)}; }
  };

  net::Task<void> serve_udp();
  void take_datagram(const Peer& peer, std::string_view bytes);
  net::Task<void> forward_datagram(Peer peer, std::shared_ptr<const Entry> entry, Query query);
  void reply(const Peer& peer, const Query& query, std::string message);
  void send(const Peer& peer, std::string_view message);
  net::Task<void> serve_tcp();
  net::Task<void> serve_connection(std::unique_ptr<net::Stream> stream, Ipv4 peer);
  // nullopt: the sandbox is gone, nobody is to be answered.
  net::Task<std::optional<std::string>> forward(Ipv4 peer, std::shared_ptr<const Entry> entry,
                                                Query query);

  Load& load_of(Ipv4 peer) { return loads[peer.value]; }
  // One sandbox must not keep the resolver from the others: what is too much is not even read.
  bool within_rate(Ipv4 peer) {
    if (loads.size() > kMaxLoads) {
      std::erase_if(loads, [](const auto& item) {
        return item.second.in_flight == 0 && item.second.connections == 0;
      });
    }
    Load& load = load_of(peer);
    const auto now = std::chrono::steady_clock::now();
    if (now - load.second >= std::chrono::seconds(1)) {
      load.second = now;
      load.queries = 0;
    }
    return ++load.queries <= options.queries_per_second;
  }
};

net::Task<void> Resolver::Impl::serve_udp() {
  std::string buffer(kMaxQuery + 1, '\0');
  while (!stopped) {
    auto [ec] = co_await udp.async_wait(asio::ip::udp::socket::wait_read, kUse);
    if (stopped || ec == asio::error::operation_aborted) co_return;
    for (int i = 0; i < kBurst && !stopped; ++i) {
      Peer peer;
      iovec piece{buffer.data(), buffer.size()};
      alignas(cmsghdr) std::array<char, 128> control{};
      msghdr message{};
      message.msg_name = &peer.address;
      message.msg_namelen = sizeof peer.address;
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t n = ::recvmsg(udp.native_handle(), &message, MSG_DONTWAIT);
      if (n < 0) break;
      for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
          std::memcpy(&peer.via, CMSG_DATA(c), sizeof peer.via);
      }
      if (peer.address.sin_family == AF_INET && std::size_t(n) <= kMaxQuery)
        take_datagram(peer, std::string_view(buffer.data(), std::size_t(n)));
    }
  }
}

void Resolver::Impl::take_datagram(const Peer& peer, std::string_view bytes) {
  auto entry = table.find(peer.ip());
  if (!entry || !within_rate(peer.ip())) return;
  auto query = dns::parse_query(bytes);
  if (!query.ok()) {
    if (query.error().code == Errc::out_of_range) send(peer, dns::reply_to_malformed(bytes));
    return;
  }
  if (auto local = answer_locally(*query, entry->policy, options.own_domain))
    return reply(peer, *query, std::move(*local));
  Load& load = load_of(peer.ip());
  if (load.in_flight >= options.in_flight_per_sandbox || in_flight >= options.in_flight)
    return reply(peer, *query, dns::encode_empty(*query, Rcode::server_failure));
  ++load.in_flight;
  ++in_flight;
  spawn(strand, "dns query", forward_datagram(peer, std::move(entry), std::move(*query)));
}

net::Task<void> Resolver::Impl::forward_datagram(Peer peer, std::shared_ptr<const Entry> entry,
                                                 Query query) {
  auto self = shared_from_this();
  auto forwarding = forward(peer.ip(), std::move(entry), query);
  auto message = co_await std::move(forwarding);
  --in_flight;
  --load_of(peer.ip()).in_flight;
  if (message && !stopped) reply(peer, query, std::move(*message));
}

net::Task<std::optional<std::string>> Resolver::Impl::forward(Ipv4 peer,
                                                              std::shared_ptr<const Entry> entry,
                                                              Query query) {
  auto looking = upstream->lookup(query.question, query.dnssec_ok, query.checking_disabled);
  const auto looked = co_await std::move(looking);
  const auto now = table.find(peer);
  if (!now || now->sandbox != entry->sandbox) co_return std::nullopt;
  if (!looked.ok()) co_return dns::encode_empty(query, Rcode::server_failure);
  const dns::Chain chain = dns::follow(looked->answer, query.question.name);
  if (query.question.type == dns::type::a) {
    for (const Ipv4 address : chain.addresses) {
      if (is_never_reachable(address)) continue;
      names->remember(entry->sandbox, peer, query.question.name, address,
                      std::chrono::seconds(chain.ttl));
    }
  }
  co_return filtered(query, *looked, chain);
}

void Resolver::Impl::reply(const Peer& peer, const Query& query, std::string message) {
  if (message.size() > query.udp_size) message = dns::encode_truncated(query);
  send(peer, message);
}

void Resolver::Impl::send(const Peer& peer, std::string_view bytes) {
  if (bytes.empty() || !udp.is_open()) return;
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(in_pktinfo))> control{};
  msghdr message{};
  sockaddr_in to = peer.address;
  message.msg_name = &to;
  message.msg_namelen = sizeof to;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  // From the address that the query was sent to; otherwise the client drops the answer.
  if (peer.via.ipi_spec_dst.s_addr != 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = IPPROTO_IP;
    c->cmsg_type = IP_PKTINFO;
    c->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
    in_pktinfo from{};
    from.ipi_spec_dst = peer.via.ipi_spec_dst;
    std::memcpy(CMSG_DATA(c), &from, sizeof from);
  }
  // A datagram that the kernel does not take now is lost, as any datagram may be.
  (void)::sendmsg(udp.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

net::Task<void> Resolver::Impl::serve_tcp() {
  while (!stopped) {
    asio::ip::tcp::socket socket(strand);
    asio::ip::tcp::endpoint from;
    auto [ec] = co_await acceptor.async_accept(socket, from, kUse);
    if (stopped || ec == asio::error::operation_aborted) co_return;
    if (ec) {  // most likely no descriptors left: do not spin
      asio::steady_timer pause(strand, kAcceptPause);
      co_await pause.async_wait(kUse);
      continue;
    }
    const Ipv4 peer{from.address().to_v4().to_uint()};
    auto stream = net::make_stream(net::Socket(std::move(socket)));
    const Load& load = load_of(peer);
    if (!table.find(peer) || !within_rate(peer) || load.connections >= options.tcp_per_sandbox ||
        connections >= options.tcp_connections) {
      stream->reset();
      continue;
    }
    ++load_of(peer).connections;
    ++connections;
    spawn(strand, "dns connection", serve_connection(std::move(stream), peer));
  }
}

net::Task<void> Resolver::Impl::serve_connection(std::unique_ptr<net::Stream> stream, Ipv4 peer) {
  auto self = shared_from_this();
  stream->set_read_timeout(options.tcp_idle);
  stream->set_write_timeout(options.tcp_idle);
  std::string buffer;
  std::array<char, 2048> piece{};
  while (!stopped) {
    std::size_t size = 0;
    if (buffer.size() >= 2) {
      size = std::size_t(static_cast<unsigned char>(buffer[0])) << 8 |
             static_cast<unsigned char>(buffer[1]);
      if (size > kMaxQuery) break;
    }
    if (buffer.size() < 2 || buffer.size() - 2 < size) {
      auto reading = stream->read_some(piece);
      const auto n = co_await std::move(reading);
      if (!n.ok() || *n == 0) break;
      buffer.append(piece.data(), *n);
      continue;
    }
    const std::string bytes = buffer.substr(2, size);
    buffer.erase(0, 2 + size);
    auto entry = table.find(peer);
    if (!entry || !within_rate(peer)) break;
    std::string answer;
    auto query = dns::parse_query(bytes);
    if (!query.ok()) {
      answer = dns::reply_to_malformed(bytes);
      if (query.error().code != Errc::out_of_range || answer.empty()) break;
    } else if (auto local = answer_locally(*query, entry->policy, options.own_domain)) {
      answer = std::move(*local);
    } else {
      auto forwarding = forward(peer, std::move(entry), *query);
      auto forwarded = co_await std::move(forwarding);
      if (!forwarded) break;
      answer = std::move(*forwarded);
    }
    if (answer.size() > dns::kMaxMessage) break;
    const std::string framed =
        std::string{char(answer.size() >> 8), char(answer.size() & 0xff)} + answer;
    auto writing = stream->write_all(framed);
    if (!(co_await std::move(writing)).ok()) break;
  }
  --connections;
  --load_of(peer).connections;
}

Resolver::Resolver(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Resolver::~Resolver() { stop(); }

Result<std::unique_ptr<Resolver>> Resolver::create(asio::io_context& io, int udp, int tcp,
                                                   const Table& table, std::shared_ptr<Names> names,
                                                   std::shared_ptr<dns::Upstream> upstream,
                                                   ResolverOptions options) {
  auto impl =
      std::make_shared<Impl>(io, table, std::move(names), std::move(upstream), std::move(options));
  boost::system::error_code ec;
  if (udp >= 0) {
    ATOLL_TRY(check_family(udp, AF_INET));
    const int on = 1;
    if (::setsockopt(udp, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) != 0)
      return errno_error("resolver socket");
    impl->udp.assign(asio::ip::udp::v4(), udp, ec);
    if (ec) return net::to_error(ec, "resolver socket");
  }
  if (tcp >= 0) {
    ATOLL_TRY(check_family(tcp, AF_INET));
    impl->acceptor.assign(asio::ip::tcp::v4(), tcp, ec);
    if (ec) return net::to_error(ec, "resolver socket");
  }
  // The coroutines own the state; `stop` ends them.
  const auto run = [](std::shared_ptr<Impl> self,
                      net::Task<void> (Impl::*serve)()) -> net::Task<void> {
    co_await (self.get()->*serve)();
  };
  if (udp >= 0) spawn(impl->strand, "dns over udp", run(impl, &Impl::serve_udp));
  if (tcp >= 0) spawn(impl->strand, "dns over tcp", run(impl, &Impl::serve_tcp));
  return std::unique_ptr<Resolver>(new Resolver(std::move(impl)));
}

void Resolver::stop() {
  asio::post(impl_->strand, [impl = impl_] {
    impl->stopped = true;
    boost::system::error_code ignored;
    impl->udp.close(ignored);
    impl->acceptor.close(ignored);
  });
}

}  // namespace atl::egress
