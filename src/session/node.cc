#include "session/node.h"

#include "base/log.h"
#include "session/cluster.h"
#include "session/front.h"
#include "session/manager.h"
#include "session/redis_table.h"
#include "session/service.h"
#include "session/sqlite_table.h"
#include "store/keys.h"

namespace atl::session {
namespace {

constexpr std::chrono::seconds kStop{5};

// Kept in the home: whoever serves it, after whatever, is the same node.
Result<std::string> node_id(const std::string& path) {
  auto kept = store::read_secret_file(path);
  if (kept.ok()) {
    while (!kept->empty() && kept->back() == '\n') kept->pop_back();
    if (!kept->empty()) return kept;
  } else if (kept.error().code != Errc::not_found) {
    return std::move(kept).error().with("the id of this node");
  }
  std::string id = "n" + random_base36(12);
  ATOLL_TRY(store::write_secret_file(path, id + "\n"));
  return id;
}

}  // namespace

struct Node::Parts {
  Parts(engine::Engine& e, store::Store& s, NodeOptions o)
      : engine(e), store(s), options(std::move(o)) {}

  engine::Engine& engine;
  store::Store& store;
  const NodeOptions options;
  std::unique_ptr<store::SessionRows> rows;
  std::unique_ptr<Redis> redis;      // null: a server of its own
  std::unique_ptr<Cluster> cluster;  // likewise
  std::unique_ptr<Table> table;
  std::unique_ptr<Manager> manager;
  std::unique_ptr<SessionService> service;
  std::unique_ptr<Front> front;
};

Node::Node(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Node::~Node() = default;

Result<std::unique_ptr<Node>> Node::create(net::asio::io_context& io, engine::Engine& engine,
                                           store::Store& store, NodeOptions options) {
  auto parts = std::make_unique<Parts>(engine, store, std::move(options));
  ManagerOptions managing;
  ATOLL_TRY_ASSIGN(managing.node, node_id(parts->options.id_file));
  ATOLL_TRY_ASSIGN(parts->rows, store::SessionRows::open(store));
  if (parts->options.shared.empty()) {
    parts->table = std::make_unique<SqliteTable>(*parts->rows);
  } else {
    ATOLL_TRY_ASSIGN(RedisAddress address, parse_redis_url(parts->options.shared));
    ATOLL_TRY_ASSIGN(const NodeAddress self, parse_node_url(parts->options.url));
    log::info("sessions are shared with other servers",
              {{"store", address.shown()}, {"node", managing.node}, {"url", self.url}});
    parts->redis = std::make_unique<Redis>(std::move(address));
    parts->table = std::make_unique<RedisTable>(*parts->redis);
    ClusterOptions cluster;
    cluster.node = managing.node;
    cluster.url = self.url;
    parts->cluster = std::make_unique<Cluster>(io, *parts->redis, *parts->rows, std::move(cluster));
  }
  store::SessionRows* mirror = parts->cluster ? parts->rows.get() : nullptr;
  parts->manager = std::make_unique<Manager>(io, engine, store, *parts->table, mirror,
                                             parts->cluster.get(), std::move(managing));
  parts->service = std::make_unique<SessionService>(*parts->manager, parts->options.domain);
  return std::unique_ptr<Node>(new Node(std::move(parts)));
}

Sessions& Node::sessions() { return *parts_->manager; }
api::Service& Node::service() { return *parts_->service; }

std::function<std::optional<std::string>(const net::RequestHead&)> Node::vouched_team() {
  if (!parts_->cluster) return {};
  return [cluster =
              parts_->cluster.get()](const net::RequestHead& head) -> std::optional<std::string> {
    const auto by = cluster->verify(head);
    if (!by || by->team.empty()) return std::nullopt;
    return by->team;
  };
}

net::Handler Node::in_front_of(net::Handler gateway, proxy::TargetRules rules) {
  if (!parts_->cluster) return gateway;
  parts_->front =
      std::make_unique<Front>(parts_->engine, parts_->store, *parts_->cluster, std::move(rules),
                              parts_->options.admin_token, std::move(gateway));
  return [front = parts_->front.get()](net::Exchange& exchange) { return front->handle(exchange); };
}

net::Task<void> Node::start() {
  auto starting = parts_->manager->start();
  co_await std::move(starting);
  if (!parts_->cluster) co_return;
  auto joining = parts_->cluster->start([this] { return parts_->manager->reconcile(); });
  co_await std::move(joining);
}

net::Task<void> Node::stop() {
  if (parts_->cluster) {
    auto leaving = parts_->cluster->stop(kStop);
    co_await std::move(leaving);
  }
  auto stopping = parts_->manager->stop(kStop);
  co_await std::move(stopping);
}

}  // namespace atl::session
