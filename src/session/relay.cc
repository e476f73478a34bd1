// Two coroutines share the client's strand: the main one sends the head and carries the answer
// down; beside it the uplink carries the body up and then watches the client, whose end closes the
// connection to the other server, which ends whatever the main one waits for. When either side
// breaks after the answer has begun, so does the other.
#include "session/relay.h"

#include <array>
#include <boost/asio/this_coro.hpp>

#include "engine/side_task.h"
#include "proxy/headers.h"

namespace atl::session {
namespace {

namespace asio = net::asio;

constexpr std::size_t kBuffer = 64 * 1024;
constexpr std::chrono::milliseconds kHalfClosed{10'000};

using Buffer = std::unique_ptr<char[]>;

struct Call {
  net::Exchange& exchange;
  net::HttpClient& node;
  bool settled = false;  // the answer is through
  bool gone = false;     // the client
};

net::Task<void> carry_up(Call& call) {
  const Buffer buffer = std::make_unique_for_overwrite<char[]>(kBuffer);
  bool taken = !call.exchange.body.at_end();
  while (taken) {
    auto reading = call.exchange.body.read_some(std::span<char>(buffer.get(), kBuffer));
    auto n = co_await std::move(reading);
    if (!n.ok()) {
      call.gone = true;
      call.node.stream().close();
      co_return;
    }
    if (*n == 0) break;
    auto writing = call.node.write_body(std::string_view(buffer.get(), *n));
    taken = (co_await std::move(writing)).ok();  // it may answer before it has read everything
  }
  if (taken || call.exchange.body.at_end()) {
    auto finishing = call.node.finish_body();
    (void)co_await std::move(finishing);  // the main coroutine sees the same failure
  }
  auto watching = call.exchange.stream.wait_peer_closed();
  co_await std::move(watching);
  if (call.settled) co_return;
  call.gone = true;
  call.node.stream().close();
}

net::Task<bool> carry_down(Call& call, net::ResponseHead head) {
  net::ResponseWriter& response = call.exchange.response;
  net::BodyReader& body = call.node.body();
  net::Headers headers = proxy::headers_to_client(head, proxy::Upgrade::no);
  if (head.status == 204 || head.status == 304) {
    auto sending = response.send(head.status, std::move(headers), "");
    co_return (co_await std::move(sending)).ok();
  }
  auto starting = response.start(head.status, std::move(headers), body.content_length());
  if (!(co_await std::move(starting)).ok()) co_return false;
  const Buffer buffer = std::make_unique_for_overwrite<char[]>(kBuffer);
  while (!body.at_end()) {
    auto reading = body.read_some(std::span<char>(buffer.get(), kBuffer));
    auto n = co_await std::move(reading);
    if (!n.ok()) co_return false;
    if (*n == 0) break;
    auto writing = response.write(std::string_view(buffer.get(), *n));
    if (!(co_await std::move(writing)).ok()) co_return false;
  }
  auto finishing = response.finish();
  co_return (co_await std::move(finishing)).ok();
}

enum class End { orderly, broken };

net::Task<void> carry_bytes(net::Stream& from, net::Stream& to, std::string early, End& end) {
  const Buffer buffer = std::make_unique_for_overwrite<char[]>(kBuffer);
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
  to.shutdown_write();
  end = End::orderly;
}

net::Task<void> carry_client(net::Stream& client, net::Stream& node, std::string early, End& end) {
  auto carrying = carry_bytes(client, node, std::move(early), end);
  co_await std::move(carrying);
  if (end == End::broken)
    node.close();
  else
    node.set_read_timeout(kHalfClosed);
}

net::Task<void> tunnel(net::Exchange& exchange, net::HttpClient& node, net::ResponseHead head) {
  net::Headers headers = proxy::headers_to_client(head, proxy::Upgrade::yes);
  auto starting = exchange.response.start(101, std::move(headers), std::nullopt);
  if (!(co_await std::move(starting)).ok()) co_return;
  std::string from_client = exchange.take_over();
  std::string from_node = node.take_over();
  exchange.stream.set_read_timeout(std::nullopt);
  End up = End::broken;
  End down = End::broken;
  engine::SideTask uplink(co_await asio::this_coro::executor,
                          carry_client(exchange.stream, node.stream(), std::move(from_client), up));
  auto carrying = carry_bytes(node.stream(), exchange.stream, std::move(from_node), down);
  co_await std::move(carrying);
  if (down == End::orderly) {
    auto waiting = uplink.wait(kHalfClosed);
    co_await std::move(waiting);
  }
  auto stopping = uplink.stop();
  co_await std::move(stopping);
  if (down == End::broken) exchange.stream.reset();
  node.stream().close();
}

}  // namespace

net::Task<Result<void>> relay(net::Exchange& exchange, net::RequestHead head, Dial dial) {
  auto dialling = dial();
  ATOLL_CO_TRY_ASSIGN(net::HttpClient node, co_await std::move(dialling));
  const bool upgrade = proxy::asks_upgrade(exchange.request) == proxy::Upgrade::yes;
  const auto length =
      exchange.body.at_end() ? std::optional<std::uint64_t>(0) : exchange.body.content_length();
  Call call{exchange, node};
  auto sending = node.write_head(head, length);
  const bool sent = (co_await std::move(sending)).ok();
  bool done = false;
  if (sent) {
    engine::SideTask uplink(co_await asio::this_coro::executor, carry_up(call));
    auto reading = node.read_head();
    auto answer = co_await std::move(reading);
    if (answer.ok() && answer->status == 101 && upgrade) {
      call.settled = true;
      auto stopping = uplink.stop();
      co_await std::move(stopping);
      auto joining = tunnel(exchange, node, std::move(*answer));
      co_await std::move(joining);
      co_return Result<void>();
    }
    if (answer.ok() && answer->status != 101) {
      auto carrying = carry_down(call, std::move(*answer));
      done = co_await std::move(carrying);
    }
    call.settled = true;
    auto stopping = uplink.stop();
    co_await std::move(stopping);
  }
  node.stream().close();
  if (done) co_return Result<void>();
  if (call.gone || exchange.response.started()) {
    exchange.response.abort();
    co_return Result<void>();
  }
  auto refusing = exchange.response.send(
      502, {{"Content-Type", "application/json"}},
      R"({"code":502,"message":"the server that has the sandbox broke the connection off"})");
  (void)co_await std::move(refusing);  // a client that is gone needs no answer
  co_return Result<void>();
}

}  // namespace atl::session
