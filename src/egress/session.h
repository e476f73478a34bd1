// Session: one connection of a sandbox through the proxy, as far as others must be able to end it;
// and the two ways of carrying its bytes.
//
// A session belongs to its strand; `touched` and `idle_limit` may be read from any thread.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/ipv4.h"
#include "net/stream.h"

namespace atl::egress {

class Session {
 public:
  using Clock = std::chrono::steady_clock;

  Session(net::asio::any_io_executor s, SandboxId id, Ipv4 from, std::chrono::milliseconds idle)
      : strand(std::move(s)), sandbox(std::move(id)), peer(from), idle_limit(idle) {
    touch();
  }

  const net::asio::any_io_executor strand;
  const SandboxId sandbox;
  const Ipv4 peer;
  std::atomic<std::chrono::milliseconds> idle_limit;

  void touch() { touched_ = Clock::now().time_since_epoch(); }
  bool idle(Clock::time_point now) const {
    return now.time_since_epoch() - touched_.load() > idle_limit.load();
  }

  // On the strand: the streams that an end breaks. They must be let go of before they are
  // destroyed.
  void hold_client(net::Stream* stream);
  void hold_upstream(net::Stream* stream);
  // Breaks both with RST, now and when they come.
  void end();
  bool ended() const { return ended_; }

 private:
  std::atomic<Clock::duration> touched_{};
  net::Stream* client_ = nullptr;
  net::Stream* upstream_ = nullptr;
  bool ended_ = false;
};

// Carries bytes both ways until both sides have finished or one breaks; then the other is broken
// too. `from_client` and `from_upstream` were read already and go first.
net::Task<void> relay_bytes(std::shared_ptr<Session> session, net::Stream& client,
                            net::Stream& upstream, std::string from_client,
                            std::string from_upstream);

// May a request for this host (nullopt: an address, or none) pass on this connection, and with
// which headers? permission_denied: no; the message tells the client why.
struct Permit {
  std::map<std::string, std::string> headers;
};
using CheckRequest = std::function<net::Task<Result<Permit>>(std::optional<std::string> host)>;
using OpenUpstream = std::function<net::Task<Result<std::unique_ptr<net::Stream>>>()>;

// Carries HTTP/1.1 requests, every one checked, over one connection to one upstream. Both sides are
// framed anew, so that nothing can hide between two readings of a message.
net::Task<void> relay_http(std::shared_ptr<Session> session, std::unique_ptr<net::Stream> client,
                           std::uint16_t port, CheckRequest check, OpenUpstream open);

}  // namespace atl::egress
