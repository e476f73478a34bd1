// Upstream: asks the resolvers that the host uses. One socket, and so one random source port, for
// each try; the kernel drops datagrams of other peers, and an answer must repeat id and question.
//
// Any number of lookups at once, each on the executor of its caller; thread-safe.
#pragma once

#include <atomic>
#include <boost/asio/ip/udp.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "egress/dns_message.h"
#include "net/task.h"

namespace atl::egress::dns {

using Server = net::asio::ip::udp::endpoint;

// "192.0.2.53:53", "[2001:db8::53]:5353"; the port may be left out.
Result<Server> parse_server(std::string_view text);
// The `nameserver` lines of a resolv.conf, at most three.
std::vector<Server> servers_from_resolv_conf(const std::string& path);

struct UpstreamOptions {
  std::chrono::milliseconds try_time{1500};
  // While nobody answers at all, a sandbox is not kept waiting for long.
  std::chrono::milliseconds try_time_when_down{300};
  int tries = 3;
};

struct Looked {
  std::string message;
  Answer answer;
};

class Upstream {
 public:
  explicit Upstream(std::vector<Server> servers, UpstreamOptions options = {});

  // unavailable: no server gave a usable answer.
  net::Task<Result<Looked>> lookup(Question question, bool dnssec_ok, bool checking_disabled);
  bool empty() const { return servers_.empty(); }

 private:
  net::Task<Result<Looked>> ask_udp(Server server, Question question, bool dnssec_ok,
                                    bool checking_disabled, std::chrono::milliseconds limit);
  net::Task<Result<Looked>> ask_tcp(Server server, Question question, bool dnssec_ok,
                                    bool checking_disabled, std::chrono::milliseconds limit);

  const std::vector<Server> servers_;
  const UpstreamOptions options_;
  std::atomic<std::size_t> preferred_ = 0;  // the one that answered last
  std::atomic<int> failures_ = 0;           // lookups in a row without any answer
};

}  // namespace atl::egress::dns
