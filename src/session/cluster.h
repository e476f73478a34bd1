// Cluster: the servers that share a table in Redis, as one of them sees the others.
//
//   atoll:nodes    hash: node -> {"url", "seen"}, the latter in ms of Redis' clock
//   atoll:secret   what requests between servers are signed with; made by the first one
//   atoll:keys     hash: SHA-256 of an API key -> node that has it, team
//
// Each server writes itself there every few seconds, and the hashes of its API keys, so that a key
// of one is good for all. When Redis answers after it did not, or has forgotten the secret and with
// it all else, the manager is told (`on_back`).
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "base/json.h"
#include "engine/completion.h"
#include "engine/tasks.h"
#include "session/peers.h"
#include "session/redis.h"
#include "session/signature.h"
#include "store/session_rows.h"

namespace atl::session {

struct ClusterOptions {
  std::string node;
  std::string url;  // where the others reach it: http://IP:PORT
  std::chrono::milliseconds beat{3'000};
  std::chrono::milliseconds alive_for{10'000};  // after its last beat
  std::chrono::milliseconds retry_for{10'000};  // a node that does not answer
  std::chrono::milliseconds retry_every{150};
  std::chrono::milliseconds connect_time{2'000};
  std::chrono::milliseconds answer_time{130'000};
};

struct NodeAddress {
  std::string url;
  std::string ip;
  std::uint16_t port = 0;
  bool alive = false;
};

// "http://10.0.0.1:3000", "http://[::1]:3000". invalid_argument: anything else; names of hosts too.
Result<NodeAddress> parse_node_url(const std::string& url);

class Cluster final : public Peers {
 public:
  // All outlive it.
  Cluster(net::asio::io_context& io, Redis& redis, store::SessionRows& rows,
          ClusterOptions options);
  ~Cluster() override;

  // Tells the others of this node, now and from now on. Redis may be away.
  net::Task<void> start(std::function<net::Task<Result<void>>()> on_back);
  net::Task<void> stop(std::chrono::milliseconds limit);

  net::Task<Result<Acquired>> acquire(std::string node, Slot slot, Options options) override;
  net::Task<Result<void>> pause(std::string node, Slot slot) override;
  net::Task<Result<void>> remove(std::string node, Slot slot) override;
  net::Task<Result<Session>> info(std::string node, Slot slot) override;
  net::Task<Result<std::vector<Session>>> list(std::string node, std::string team) override;
  net::Task<Result<bool>> alive(std::string node) override;

  // A connection to a node, tried for a while. unavailable: it does not answer.
  net::Task<Result<net::HttpClient>> connect(std::string node);
  // The other node that has this sandbox of a session; nullopt: none has it.
  net::Task<Result<std::optional<std::string>>> owner_of(std::string sandbox);
  // The team of an API key of another node; nullopt: nobody knows the key.
  net::Task<Result<std::optional<std::string>>> team_of_key(std::string hash);

  void sign(net::RequestHead& head, const std::string& team) const;
  std::optional<Signed> verify(const net::RequestHead& head) const;
  const ClusterOptions& options() const { return options_; }

 private:
  struct Cached {
    std::optional<std::string> value;
    std::chrono::steady_clock::time_point until;
  };
  using Cache = std::map<std::string, Cached, std::less<>>;

  net::Task<void> beat_for_ever(std::function<net::Task<Result<void>>()> on_back);
  // True: Redis has forgotten what it was told.
  net::Task<Result<bool>> beat();
  net::Task<Result<bool>> learn_secret();
  net::Task<Result<void>> publish_keys();
  net::Task<Result<NodeAddress>> find(std::string node);
  net::Task<Result<net::HttpClient::Answer>> ask_once(NodeAddress to, net::RequestHead head,
                                                      std::string body);
  net::Task<Result<json::value>> ask(std::string node, std::string team, std::string method,
                                     std::string target, std::string body);
  std::optional<Cached> cached(const Cache& cache, const std::string& key) const;
  void remember(Cache& cache, std::string key, std::optional<std::string> value,
                std::chrono::milliseconds good_for);
  Error silent(const std::string& node, const std::string& why) const;
  std::string secret() const;

  Redis& redis_;
  store::SessionRows& rows_;
  const ClusterOptions options_;
  engine::Tasks tasks_;
  engine::Completion stopping_;
  mutable std::mutex mutex_;  // guards all below
  std::string secret_;
  Cache owners_;
  Cache teams_;
  std::optional<std::map<std::string, std::string>> published_;  // hash -> team; unset: not known
};

}  // namespace atl::session
