// After a 101 the two connections are joined as raw bytes. An end on one side is passed on to the
// other, which then has a while to finish; a failure on one side breaks the other at once. When the
// route is held, the side of the sandbox ends and that of the client stands still.
#include <boost/asio/this_coro.hpp>

#include "engine/side_task.h"
#include "proxy/forward.h"

namespace atl::proxy {
namespace {

namespace asio = net::asio;

constexpr std::size_t kBuffer = 64 * 1024;
constexpr std::chrono::milliseconds kHalfClosed{10'000};

enum class End { orderly, broken };

net::Task<void> carry(const Flow& flow, net::Stream& from, net::Stream& to, std::string early,
                      End& end) {
  const auto buffer = std::make_unique_for_overwrite<char[]>(kBuffer);
  if (!early.empty()) {
    auto writing = to.write_all(early);
    if (!(co_await std::move(writing)).ok()) co_return;
  }
  for (;;) {
    auto reading = from.read_some(std::span<char>(buffer.get(), kBuffer));
    auto n = co_await std::move(reading);
    if (!n.ok()) co_return;
    if (*n == 0) break;
    auto writing = to.write_all(std::string_view(buffer.get(), *n));
    if (!(co_await std::move(writing)).ok()) co_return;
  }
  if (flow.died() || flow.route->held()) co_return;
  to.shutdown_write();
  end = End::orderly;
}

// The direction from the client; its end must be noticed while the other direction waits.
net::Task<void> carry_up(std::shared_ptr<Flow> flow, std::string early, End& end) {
  net::Stream& sandbox = flow->upstream->stream();
  auto carrying = carry(*flow, flow->exchange->stream, sandbox, std::move(early), end);
  co_await std::move(carrying);
  if (end == End::broken)
    sandbox.close();
  else
    sandbox.set_read_timeout(kHalfClosed);
}

// What the client sends meanwhile is left unread.
net::Task<void> watch_client(std::shared_ptr<Flow> flow) {
  auto watching = flow->exchange->stream.wait_peer_closed();
  co_await std::move(watching);
  flow->on_client_gone();
}

}  // namespace

net::Task<void> run_tunnel(std::shared_ptr<Flow> flow, net::ResponseHead head) {
  net::Exchange& exchange = *flow->exchange;
  net::Stream& client = exchange.stream;
  net::Stream& sandbox = flow->upstream->stream();
  auto starting = exchange.response.start(101, headers_to_client(head, Upgrade::yes), std::nullopt);
  if (!(co_await std::move(starting)).ok()) co_return;
  std::string from_client = exchange.take_over();
  std::string from_sandbox = flow->upstream->take_over();
  client.set_read_timeout(std::nullopt);

  End up = End::broken;
  End down = End::broken;
  engine::SideTask uplink(co_await asio::this_coro::executor,
                          carry_up(flow, std::move(from_client), up));
  auto carrying = carry(*flow, sandbox, client, std::move(from_sandbox), down);
  co_await std::move(carrying);
  if (down == End::orderly) {
    auto waiting = uplink.wait(kHalfClosed);
    co_await std::move(waiting);
  }
  auto stopping = uplink.stop();
  co_await std::move(stopping);
  if (down == End::broken && flow->stands()) {
    flow->settled = false;  // the client is watched again
    engine::SideTask watcher(co_await asio::this_coro::executor, watch_client(flow));
    auto standing = flow->stand_still();
    co_await std::move(standing);
    auto ending = watcher.stop();
    co_await std::move(ending);
  }
  if (down == End::broken) client.reset();
  sandbox.close();
}

}  // namespace atl::proxy
