// The server process: what it is made of, in the order in which it must be made.
//
// Root is needed for the warden, for listening sockets and for certificates that only root may
// read; after that the process becomes the user atoll for good, and only then opens the store and
// reads its first request.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/strand.hpp>
#include <thread>

#include "api_server/api_server.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/announce.h"
#include "cli/executor_door.h"
#include "cli/home.h"
#include "cli/instance.h"
#include "cli/metrics.h"
#include "cli/sockets.h"
#include "cli/standby.h"
#include "cli/supervisor.h"
#include "cli/tls_files.h"
#include "cli/up.h"
#include "cli/workspace_server.h"
#include "egress/egress.h"
#include "engine/engine.h"
#include "mcp/http_service.h"
#include "net/http_server.h"
#include "providers/service.h"
#include "proxy/gateway.h"
#include "proxy/proxy.h"
#include "session/node.h"
#include "store/keys.h"
#include "store/store.h"
#include "sys/self.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kDrain{2};
constexpr std::chrono::seconds kKillAll{15};

struct Server {
  asio::io_context io;
  std::unique_ptr<runtime::JailRuntime> runtime;
  std::unique_ptr<net::HttpServer> http;
  std::unique_ptr<net::HttpServer> metrics;
  std::unique_ptr<ExecutorDoor> executor;  // null: not asked for
  std::unique_ptr<store::Store> store;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<session::Node> sessions;
  std::unique_ptr<egress::Egress> egress;  // resolver and proxy; null: the runtime has no network
  std::unique_ptr<WorkspaceServer> workspaces;
  std::unique_ptr<providers::ProviderService> providers;
  std::unique_ptr<mcp::HttpService> mcp;
  std::unique_ptr<api::ApiServer> api;
  std::unique_ptr<proxy::Proxy> proxy;
  net::Handler gateway;
  Traffic traffic;
  Addresses addresses;
  ServerCertificate certificate;
  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  int exit_code = 0;

  void fail(std::string_view message, const Error& error) {
    log::error(message, {{"error", error.message}});
    exit_code = 1;
    io.stop();
  }
};

net::Task<void> answer(Server& server, net::Exchange& exchange) {
  struct Counted {
    explicit Counted(Traffic& t) : traffic(t) { ++traffic.requests, ++traffic.in_flight; }
    ~Counted() { --traffic.in_flight; }
    Traffic& traffic;
  } counted(server.traffic);
  auto handling = server.gateway(exchange);
  co_await std::move(handling);
}

net::Task<void> answer_metrics(Server& server, net::Exchange& exchange) {
  if (exchange.request.path() != "/metrics" || exchange.request.method != "GET") {
    (void)co_await exchange.response.send(404, {{"Content-Type", "text/plain"}},
                                          "GET /metrics is all there is\n");
    co_return;
  }
  MetricsInput input;
  input.engine = server.engine->statistics();
  input.process = process_figures();
  input.requests = server.traffic.requests;
  input.in_flight = server.traffic.in_flight;
  input.connections = server.http->connections();
  input.uptime_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - server.started).count();
  (void)co_await exchange.response.send(
      200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, exposition(input));
}

Result<void> write_server_file(const Server& server, const Home& home, bool supervised) {
  json::object facts;
  facts["pid"] = ::getpid();
  if (supervised) facts["supervisor"] = ::getppid();
  facts["warden"] = server.runtime->warden_pid();
  facts["url"] = server.addresses.http;
  if (!server.addresses.https.empty()) facts["https"] = server.addresses.https;
  if (!server.addresses.tls.empty()) facts["tls"] = server.addresses.tls;
  if (!server.addresses.metrics.empty()) facts["metrics"] = server.addresses.metrics;
  if (!server.addresses.executor.empty()) facts["executor"] = server.addresses.executor;
  return write_file(home.server_file(), json::serialize(facts) + "\n", 0600, Sync::no);
}

// Clients that came earlier have been waiting in the queues of the sockets.
Result<void> open_doors(Server& server, Sockets& sockets) {
  if (sockets.metrics) {
    ATOLL_TRY(server.metrics->listen_fd(sockets.metrics->fd.release(), "metrics"));
  }
  if (sockets.tls) {
    ATOLL_TRY(
        server.http->listen_tls_fd(sockets.tls->fd.release(), "tls", server.certificate.context));
    asio::co_spawn(server.io, follow_certificate(server.certificate), asio::detached);
  }
  if (server.executor) {
    ATOLL_TRY(server.executor->open(std::move(*sockets.executor)));
  }
  return server.http->listen_fd(sockets.main.fd.release(), "main");
}

// What sandboxes get out by. Before the doors: no sandbox is answered for that cannot resolve
// names.
net::Task<Result<void>> start_egress(Server& server, const Sockets& sockets,
                                     const ServeOptions& options) {
  auto asking = server.runtime->egress_sockets();
  ATOLL_CO_TRY_ASSIGN(const runtime::EgressSockets opened, co_await std::move(asking));
  if (opened.proxy < 0) co_return Result<void>();
  egress::EgressOptions egress_options;
  egress_options.resolvers = options.resolvers;
  egress_options.own_domain = options.domain;
  if (sockets.tls) egress_options.own_ingress = reachable(sockets.tls->address);
  egress_options.own_ingress_plain = reachable(sockets.main.address);
  egress_options.extra_ca = options.domain.empty() ? "" : server.addresses.ca_file;
  egress_options.home = options.home;
  ATOLL_CO_TRY_ASSIGN(server.egress,
                      egress::Egress::create(server.io, opened, server.engine->egress(),
                                             std::move(egress_options)));
  co_return Result<void>();
}

// Whoever started us holds the other end of our stdin, and is gone when it ends.
net::Task<void> follow_stdin() {
  asio::posix::stream_descriptor in(co_await asio::this_coro::executor, ::dup(STDIN_FILENO));
  char ignored[256];
  for (;;) {
    auto [ec, n] =
        co_await in.async_read_some(asio::buffer(ignored), asio::as_tuple(asio::use_awaitable));
    if (ec) break;
  }
  ::kill(::getpid(), SIGINT);
}

// From the engine's start to the end of the process.
net::Task<void> life(Server& server, const Home& home, const ServeOptions& options,
                     Sockets& sockets, std::string key) {
  auto starting = server.engine->start();
  if (auto started = co_await std::move(starting); !started.ok()) {
    server.fail("the engine did not start", started.error());
    co_return;
  }
  auto opening = start_egress(server, sockets, options);
  if (auto opened = co_await std::move(opening); !opened.ok()) {
    server.fail("cannot serve sandboxes' way out", opened.error());
    co_return;
  }
  auto finding = server.sessions->start();
  co_await std::move(finding);
  auto preparing = server.workspaces->start();
  if (auto ready = co_await std::move(preparing); !ready.ok()) {
    server.fail("the storage of workspaces cannot be used", ready.error());
    co_return;
  }
  const bool supervised = !options.supervised.empty();
  if (auto written = write_server_file(server, home, supervised); !written.ok()) {
    server.fail("cannot write server.json", written.error());
    co_return;
  }
  asio::signal_set signals(co_await asio::this_coro::executor, SIGTERM, SIGINT);
  if (auto open = open_doors(server, sockets); !open.ok()) {
    server.fail("cannot serve", open.error());
    co_return;
  }
  if (!supervised || has_word(options.supervised, "announce")) announce(server.addresses, key);
  if (supervised) {
    (void)!::write(kReadyFd, "+", 1);
    ::close(kReadyFd);
  }

  if (options.with_stdin) asio::co_spawn(server.io, follow_stdin(), [](std::exception_ptr) {});
  auto [ec, number] = co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
  (void)ec;
  const bool kill = number == SIGINT;
  log::info(kill ? "stopping; sandboxes are killed" : "stopping; sandboxes go on",
            {{"signal", kill ? "SIGINT" : "SIGTERM"}});
  auto leaving = server.sessions->stop();
  co_await std::move(leaving);
  if (server.executor) {
    auto closing = server.executor->shutdown(kDrain);
    co_await std::move(closing);
  }
  // Sandboxes first: their clients see a dead sandbox, instead of keeping the drain waiting for
  // streams that never end.
  auto ending = server.engine->shutdown(
      kKillAll, kill ? engine::AtShutdown::kill_sandboxes : engine::AtShutdown::leave_sandboxes);
  co_await std::move(ending);
  if (server.egress) server.egress->stop();
  auto draining = server.http->shutdown(kDrain);
  co_await std::move(draining);
  ::unlink(home.server_file().c_str());
  server.io.stop();
}

Result<Sockets> inherited_sockets(const std::string& words) {
  Sockets out;
  ATOLL_TRY_ASSIGN(out.main, adopt_listening(kMainFd));
  if (has_word(words, "tls")) {
    ATOLL_TRY_ASSIGN(Listening tls, adopt_listening(kTlsFd));
    out.tls.emplace(std::move(tls));
  }
  if (has_word(words, "metrics")) {
    ATOLL_TRY_ASSIGN(Listening metrics, adopt_listening(kMetricsFd));
    out.metrics.emplace(std::move(metrics));
  }
  if (has_word(words, "executor")) {
    ATOLL_TRY_ASSIGN(Listening executor, adopt_listening(kExecutorFd));
    out.executor.emplace(std::move(executor));
  }
  return out;
}

Result<std::string> ensure_admin_token(const std::string& path) {
  auto existing = store::read_secret_file(path);
  if (existing.ok()) {
    while (!existing->empty() && existing->back() == '\n') existing->pop_back();
    if (!existing->empty()) return std::move(*existing);
  } else if (existing.error().code != Errc::not_found) {
    return std::move(existing).error();
  }
  std::string token = random_hex(24);
  ATOLL_TRY(store::write_secret_file(path, token + "\n"));
  return token;
}

Result<engine::EngineOptions> engine_options(const ServeOptions& options, const Home& home,
                                             const Addresses& addresses) {
  engine::EngineOptions out;
  out.home = home.path();
  out.templates = home.templates();
  out.domain = addresses.domain;
  ATOLL_TRY_ASSIGN(out.ca_bundle, egress::ca_pem(home.path()));
  // The server's own hosts, where header rules do not make the egress proxy answer for them.
  if (!addresses.ca_file.empty()) {
    ATOLL_TRY_ASSIGN(const std::string own_ca, read_file(addresses.ca_file));
    out.ca_bundle += own_ca;
  }
  out.max_sandboxes = options.max_sandboxes;
  out.max_per_team = options.max_per_team;
  out.max_per_key = options.max_per_key;
  out.max_creates_in_flight = options.max_creates;
  out.max_connections_per_sandbox = options.max_connections_per_sandbox;
  out.keep_frozen = std::chrono::seconds(options.keep_frozen);
  out.max_frozen_memory = options.max_frozen_memory;
  out.pool.ready = options.pool_ready;
  out.pool.skeletons = options.pool_skeletons;
  out.pool.zygotes = !options.no_zygotes;
  if (!options.executor.listen.empty())
    out.pool.from_start.push_back(options.executor.template_name);
  return out;
}

}  // namespace

Result<void> configure_log(const ServeOptions& options) {
  static constexpr std::pair<std::string_view, log::Level> kLevels[] = {
      {"debug", log::Level::debug},
      {"info", log::Level::info},
      {"warn", log::Level::warn},
      {"error", log::Level::error}};
  for (const auto& [name, level] : kLevels) {
    if (name != options.log_level) continue;
    const bool json = options.json_logs || !::isatty(STDERR_FILENO);
    log::configure(level, json ? log::Format::json : log::Format::text);
    return {};
  }
  return make_error(Errc::invalid_argument,
                    "unknown --log-level '" + options.log_level + "': debug, info, warn, error");
}

Result<int> serve(const ServeOptions& options) {
  if (has_word(options.supervised, "relay")) return relay_connections(options);
  const bool supervised = !options.supervised.empty();
  const pid_t parent = ::getppid();
  if (supervised) ::setsid();  // the terminal's signals are for the supervisor
  ATOLL_TRY(configure_log(options));
  ATOLL_TRY_ASSIGN(executor::Settings executor_settings, settings_of(options.executor));
  ::signal(SIGPIPE, SIG_IGN);
  sys::raise_open_files();
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY_ASSIGN(const Home home, Home::open(options.home, user));
  Result<Instance> claimed = supervised
                                 ? Instance::inherit(home, std::string(kMainInstance), kLockFd)
                                 : Instance::claim(home, std::string(kMainInstance), user);
  ATOLL_TRY_ASSIGN(const Instance instance, std::move(claimed));
  ATOLL_TRY_ASSIGN(Sockets sockets,
                   supervised ? inherited_sockets(options.supervised) : open_sockets(options));
  // Keys of the storage are read here, and nobody who is started from now on has them.
  ATOLL_TRY_ASSIGN(blobs::Location storage, find_storage(options.blobs, home, user));
  Server server;
  ATOLL_TRY_ASSIGN(server.certificate, load_certificate(options, home));
  ATOLL_TRY(sweep_dead_runs(home, user));

  server.addresses = addresses_of(sockets, options);
  ATOLL_TRY_ASSIGN(server.runtime, start_runtime(server.io, home, instance.name(), user));
  server.http = std::make_unique<net::HttpServer>(
      server.io, net::ServerOptions{},
      [&server](net::Exchange& exchange) { return answer(server, exchange); });
  ATOLL_TRY(become(user));
  if (supervised) {
    // After the change of user, which clears it.
    if (::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) != 0) return errno_error("PR_SET_PDEATHSIG");
    if (::getppid() != parent) return make_error(Errc::aborted, "the supervisor is gone");
  }

  ATOLL_TRY_ASSIGN(server.store, store::Store::open(home.state_db()));
  ATOLL_TRY_ASSIGN(const store::DefaultKey key,
                   store::ensure_default_key(*server.store, home.key_file()));
  ATOLL_TRY_ASSIGN(const std::string admin, ensure_admin_token(home.admin_token_file()));
  ATOLL_TRY_ASSIGN(engine::EngineOptions chosen, engine_options(options, home, server.addresses));
  ATOLL_TRY_ASSIGN(server.engine, engine::Engine::create(server.io, *server.store, *server.runtime,
                                                         std::move(chosen)));
  ATOLL_TRY_ASSIGN(server.workspaces, WorkspaceServer::create(server.io, home, std::move(storage),
                                                              *server.engine, *server.store));
  session::NodeOptions node;
  node.id_file = home.node_file();
  node.domain = server.addresses.domain;
  node.shared = options.store;
  node.url =
      options.advertise.empty() ? "http://" + reachable(sockets.main.address) : options.advertise;
  node.admin_token = admin;
  ATOLL_TRY_ASSIGN(server.sessions, session::Node::create(server.io, *server.engine, *server.store,
                                                          std::move(node)));
  ATOLL_TRY_ASSIGN(server.providers, providers::ProviderService::create(
                                         *server.engine, *server.store, home.provider_key_file()));
  mcp::HttpOptions mcp_options;
  mcp_options.version = options.version;
  mcp_options.domain = options.domain;
  server.mcp = std::make_unique<mcp::HttpService>(
      server.sessions->sessions(), &server.workspaces->workspaces(), std::move(mcp_options));
  server.api = std::make_unique<api::ApiServer>(
      *server.engine, *server.store,
      api::ApiOptions{.admin_token = admin,
                      .version = options.version,
                      .vouched_team = server.sessions->vouched_team()},
      std::vector<api::Service*>{
          &server.sessions->service(),
          &server.workspaces->service(),
          server.providers.get(),
          server.mcp.get(),
      });
  proxy::ProxyOptions proxy_options;
  proxy_options.domain = options.domain;
  proxy_options.is_control_path = [&server](std::string_view path) {
    return server.api->is_control_path(path);
  };
  server.proxy = std::make_unique<proxy::Proxy>(*server.engine, proxy_options);
  server.gateway =
      server.sessions->in_front_of(proxy::make_gateway_handler(*server.api, *server.proxy),
                                   {proxy_options.domain, proxy_options.is_control_path});

  if (sockets.executor) {
    server.executor = std::make_unique<ExecutorDoor>(
        server.io, *server.engine, server.store->default_team().id, std::move(executor_settings));
  }

  server.runtime->on_lost([&server] {
    server.fail("the warden is gone; stopping. Sandboxes go on and are found again",
                Error{Errc::unavailable, 0, "connection closed"});
  });
  server.metrics = std::make_unique<net::HttpServer>(
      server.io, net::ServerOptions{},
      [&server](net::Exchange& exchange) { return answer_metrics(server, exchange); });
  asio::co_spawn(asio::make_strand(server.io), life(server, home, options, sockets, key.secret),
                 [&server](std::exception_ptr failure) {
                   if (failure) {
                     server.exit_code = 1;
                     server.io.stop();
                   }
                 });
  std::vector<std::jthread> threads;
  const unsigned wanted = std::max(2u, std::thread::hardware_concurrency());
  for (unsigned i = 1; i < wanted; ++i) threads.emplace_back([&server] { server.io.run(); });
  server.io.run();
  threads.clear();
  return server.exit_code;
}

}  // namespace atl::cli
