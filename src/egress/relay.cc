#include <boost/asio/this_coro.hpp>

#include "egress/session.h"
#include "egress/side.h"

namespace atl::egress {
namespace {

constexpr std::size_t kBuffer = 16 * 1024;
// One side has finished: the other may go on, but not be silent for long.
constexpr std::chrono::milliseconds kHalfClosedIdle{120'000};

// True: it ended in order, and the end was passed on.
net::Task<bool> carry(Session& session, net::Stream& from, net::Stream& to, std::string early) {
  if (!early.empty()) {
    auto writing = to.write_all(early);
    if (!(co_await std::move(writing)).ok()) co_return false;
    std::string().swap(early);
  }
  const auto buffer = std::make_unique_for_overwrite<char[]>(kBuffer);
  for (;;) {
    auto reading = from.read_some(std::span<char>(buffer.get(), kBuffer));
    const auto n = co_await std::move(reading);
    if (!n.ok()) co_return false;
    session.touch();
    if (*n == 0) break;
    auto writing = to.write_all(std::string_view(buffer.get(), *n));
    if (!(co_await std::move(writing)).ok()) co_return false;
    session.touch();
  }
  to.shutdown_write();
  session.idle_limit = std::min(session.idle_limit.load(), kHalfClosedIdle);
  co_return true;
}

net::Task<void> carry_up(std::shared_ptr<Session> session, net::Stream& client,
                         net::Stream& upstream, std::string early) {
  auto carrying = carry(*session, client, upstream, std::move(early));
  if (!(co_await std::move(carrying))) session->end();
}

}  // namespace

void Session::hold_client(net::Stream* stream) {
  client_ = stream;
  if (ended_ && stream != nullptr) stream->reset();
}

void Session::hold_upstream(net::Stream* stream) {
  upstream_ = stream;
  if (ended_ && stream != nullptr) stream->reset();
}

void Session::end() {
  ended_ = true;
  if (client_ != nullptr) client_->reset();
  if (upstream_ != nullptr) upstream_->reset();
}

net::Task<void> relay_bytes(std::shared_ptr<Session> session, net::Stream& client,
                            net::Stream& upstream, std::string from_client,
                            std::string from_upstream) {
  session->hold_client(&client);
  session->hold_upstream(&upstream);
  client.set_read_timeout(std::nullopt);
  client.set_write_timeout(std::nullopt);
  upstream.set_read_timeout(std::nullopt);
  upstream.set_write_timeout(std::nullopt);
  Side up(co_await net::asio::this_coro::executor,
          carry_up(session, client, upstream, std::move(from_client)));
  auto carrying = carry(*session, upstream, client, std::move(from_upstream));
  if (!(co_await std::move(carrying))) session->end();
  auto finishing = up.finished();
  co_await std::move(finishing);
  session->hold_client(nullptr);
  session->hold_upstream(nullptr);
}

}  // namespace atl::egress
