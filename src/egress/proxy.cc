#include "egress/proxy.h"

#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include "base/log.h"
#include "egress/connection.h"
#include "egress/dial.h"
#include "egress/spawn.h"

namespace atl::egress {
namespace {

namespace asio = net::asio;
using asio::ip::tcp;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::seconds kForgetEvery{60};

}  // namespace

Result<Destination> original_destination(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (::getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, &address, &length) != 0)
    return errno_error("original destination");
  if (address.sin_family != AF_INET)
    return make_error(Errc::invalid_argument, "original destination: not IPv4");
  return Destination{Ipv4{ntohl(address.sin_addr.s_addr)}, ntohs(address.sin_port)};
}

struct EgressProxy::Impl : std::enable_shared_from_this<Impl> {
  Impl(asio::io_context& context, Surroundings s)
      : io(context),
        strand(asio::make_strand(context)),
        acceptor(strand),
        sweep_timer(strand),
        around(std::make_shared<const Surroundings>(std::move(s))) {}

  asio::io_context& io;
  asio::strand<asio::io_context::executor_type> strand;
  tcp::acceptor acceptor;          // on the strand
  asio::steady_timer sweep_timer;  // on the strand
  bool stopped = false;            // on the strand
  const std::shared_ptr<const Surroundings> around;

  mutable std::mutex mutex;  // guards the two below
  std::unordered_map<Session*, std::shared_ptr<Session>> sessions;
  std::unordered_map<std::uint32_t, std::size_t> per_peer;

  net::Task<void> accept_loop();
  net::Task<void> sweep_loop();
  void take(tcp::socket socket, Ipv4 peer);
  net::Task<void> serve(std::shared_ptr<Session> session, std::unique_ptr<net::Stream> client,
                        Destination to);
  bool admit(const std::shared_ptr<Session>& session);
  void leave(Session& session);
  void end_if(const std::function<bool(const Session&)>& condition);
};

net::Task<void> EgressProxy::Impl::accept_loop() {
  auto self = shared_from_this();
  while (!stopped) {
    tcp::socket socket(asio::make_strand(io));
    tcp::endpoint from;
    auto [ec] = co_await acceptor.async_accept(socket, from, kUse);
    if (stopped || ec == asio::error::operation_aborted) co_return;
    if (ec) {  // most likely no descriptors left: do not spin
      asio::steady_timer pause(strand, kAcceptPause);
      co_await pause.async_wait(kUse);
      continue;
    }
    take(std::move(socket), Ipv4{from.address().to_v4().to_uint()});
  }
}

void EgressProxy::Impl::take(tcp::socket socket, Ipv4 peer) {
  const asio::any_io_executor executor = socket.get_executor();
  const auto to = around->options.destination_of(socket.native_handle());
  auto client = net::make_stream(net::Socket(std::move(socket)));
  const auto entry = around->table.find(peer);
  if (!entry || !to.ok()) return client->reset();
  auto session = std::make_shared<Session>(executor, entry->sandbox, peer, around->options.idle);
  if (!admit(session)) {
    log::debug("egress: too many connections", {{"sandbox", entry->sandbox.str()}});
    return client->reset();
  }
  spawn(executor, "egress connection", serve(std::move(session), std::move(client), *to));
}

net::Task<void> EgressProxy::Impl::serve(std::shared_ptr<Session> session,
                                         std::unique_ptr<net::Stream> client, Destination to) {
  struct Leaving {
    std::shared_ptr<Impl> self;
    std::shared_ptr<Session> session;
    ~Leaving() { self->leave(*session); }
  } leaving{shared_from_this(), session};
  auto carrying = carry_connection(around, std::move(session), std::move(client), to);
  co_await std::move(carrying);
}

bool EgressProxy::Impl::admit(const std::shared_ptr<Session>& session) {
  std::lock_guard lock(mutex);
  if (sessions.size() >= around->options.in_all) return false;
  std::size_t& count = per_peer[session->peer.value];
  if (count >= around->options.per_sandbox) return false;
  ++count;
  sessions.emplace(session.get(), session);
  return true;
}

void EgressProxy::Impl::leave(Session& session) {
  std::lock_guard lock(mutex);
  const auto found = per_peer.find(session.peer.value);
  if (found != per_peer.end() && --found->second == 0) per_peer.erase(found);
  sessions.erase(&session);
}

void EgressProxy::Impl::end_if(const std::function<bool(const Session&)>& condition) {
  std::lock_guard lock(mutex);
  for (const auto& [key, session] : sessions) {
    if (condition(*session)) asio::post(session->strand, [session] { session->end(); });
  }
}

// Ends what has been silent for too long and what belongs to sandboxes that are gone.
net::Task<void> EgressProxy::Impl::sweep_loop() {
  auto self = shared_from_this();
  const auto is_gone = [this](const SandboxId& sandbox, Ipv4 peer) {
    const auto entry = around->table.find(peer);
    return !entry || entry->sandbox != sandbox;
  };
  auto forgot = Session::Clock::now();
  while (!stopped) {
    sweep_timer.expires_after(around->options.sweep_every);
    co_await sweep_timer.async_wait(kUse);
    if (stopped) co_return;
    const auto now = Session::Clock::now();
    end_if([&](const Session& session) {
      return session.idle(now) || is_gone(session.sandbox, session.peer);
    });
    if (now - forgot < kForgetEvery) continue;
    forgot = now;
    around->names->forget_if(is_gone);
  }
}

EgressProxy::EgressProxy(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
EgressProxy::~EgressProxy() { stop(); }

Result<std::unique_ptr<EgressProxy>> EgressProxy::create(asio::io_context& io, int listener,
                                                         const Table& table,
                                                         std::shared_ptr<Names> names,
                                                         std::shared_ptr<dns::Upstream> upstream,
                                                         std::shared_ptr<Interceptor> interceptor,
                                                         ProxyOptions options) {
  if (!options.destination_of) options.destination_of = original_destination;
  if (!options.connect) options.connect = dial;
  auto impl = std::make_shared<Impl>(io, Surroundings{table, std::move(names), std::move(upstream),
                                                      std::move(interceptor), std::move(options)});
  if (listener >= 0) {
    boost::system::error_code ec;
    impl->acceptor.assign(tcp::v4(), listener, ec);
    if (ec) return net::to_error(ec, "egress proxy socket");
    spawn(impl->strand, "egress proxy", impl->accept_loop());
    spawn(impl->strand, "egress sweep", impl->sweep_loop());
  }
  return std::unique_ptr<EgressProxy>(new EgressProxy(std::move(impl)));
}

void EgressProxy::drop(Ipv4 address) {
  impl_->end_if([&](const Session& session) { return session.peer == address; });
}

void EgressProxy::stop() {
  impl_->end_if([](const Session&) { return true; });
  asio::post(impl_->strand, [impl = impl_] {
    impl->stopped = true;
    boost::system::error_code ignored;
    impl->acceptor.close(ignored);
    impl->sweep_timer.cancel();
    impl->end_if([](const Session&) { return true; });
  });
}

std::size_t EgressProxy::connections() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->sessions.size();
}

}  // namespace atl::egress
