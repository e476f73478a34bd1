// The server process: what it is made of, in the order in which it must be made.
//
// Root is needed for the warden and, with a low port, for the listening socket; after that the
// process becomes the user atoll for good, and only then opens the store and reads its first
// request.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/strand.hpp>
#include <cstdio>
#include <thread>

#include "api_server/api_server.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/home.h"
#include "cli/instance.h"
#include "cli/up.h"
#include "engine/engine.h"
#include "net/http_server.h"
#include "proxy/gateway.h"
#include "proxy/proxy.h"
#include "store/keys.h"
#include "store/store.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kDrain{2};
constexpr std::chrono::seconds kKillAll{15};

struct Server {
  asio::io_context io;
  std::unique_ptr<runtime::JailRuntime> runtime;
  std::unique_ptr<net::HttpServer> http;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<api::ApiServer> api;
  std::unique_ptr<proxy::Proxy> proxy;
  net::Handler gateway;  // empty until the engine is ready
  std::atomic<bool> ready = false;
  std::string url;
  int exit_code = 0;
};

std::string url_of(const std::string& listen, std::uint16_t port) {
  std::string host = listen.substr(0, listen.rfind(':'));
  if (host == "0.0.0.0" || host == "[::]") host = "127.0.0.1";
  return "http://" + host + ":" + std::to_string(port);
}

net::Task<void> answer(Server& server, net::Exchange& exchange) {
  if (!server.ready) {
    net::Headers headers{{"Content-Type", "application/json"}, {"Retry-After", "1"}};
    (void)co_await exchange.response.send(503, headers,
                                          R"({"code":503,"message":"the server is starting"})");
    co_return;
  }
  auto handling = server.gateway(exchange);
  co_await std::move(handling);
}

void announce(const Server& server, const std::string& key) {
  std::printf("export E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\nexport E2B_API_KEY=%s\n",
              server.url.c_str(), server.url.c_str(), key.c_str());
  std::fflush(stdout);
  std::fprintf(
      stderr,
      "\nAtoll serves on %s. With the three exports above in the environment, an example:\n\n"
      "  npm install e2b && node --input-type=module -e \\\n"
      "    \"import { Sandbox } from 'e2b'; const s = await Sandbox.create(); "
      "console.log((await s.commands.run('uname -a')).stdout); await s.kill()\"\n\n",
      server.url.c_str());
  // Whoever reads our stdout (`eval "$(atoll up --detach)"`) sees its end now.
  if (const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC); null >= 0) {
    ::dup2(null, STDOUT_FILENO);
    ::close(null);
  }
}

net::Task<void> life(Server& server, const Home& home, std::string key) {
  auto starting = server.engine->start();
  if (auto started = co_await std::move(starting); !started.ok()) {
    log::error("the engine did not start", {{"error", started.error().message}});
    server.exit_code = 1;
    server.io.stop();
    co_return;
  }
  json::object facts;
  facts["pid"] = ::getpid();
  facts["url"] = server.url;
  if (auto written = write_file(home.server_file(), json::serialize(facts) + "\n", 0600);
      !written.ok()) {
    log::error("cannot write server.json", {{"error", written.error().message}});
    server.exit_code = 1;
    server.io.stop();
    co_return;
  }
  server.ready = true;
  announce(server, key);

  asio::signal_set signals(co_await asio::this_coro::executor, SIGTERM, SIGINT);
  auto [ec, number] = co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
  (void)ec;
  log::info("stopping", {{"signal", number == SIGINT ? "SIGINT" : "SIGTERM"}});
  // Sandboxes first: their clients see a dead sandbox, instead of keeping the drain waiting for
  // streams that never end.
  auto killing = server.engine->shutdown(kKillAll, engine::AtShutdown::kill_sandboxes);
  co_await std::move(killing);
  auto draining = server.http->shutdown(kDrain);
  co_await std::move(draining);
  ::unlink(home.server_file().c_str());
  server.io.stop();
}

}  // namespace

Result<int> serve(const ServeOptions& options) {
  log::configure(log::Level::info, options.json_logs || !::isatty(STDERR_FILENO)
                                       ? log::Format::json
                                       : log::Format::text);
  ::signal(SIGPIPE, SIG_IGN);
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY_ASSIGN(const Home home, Home::open(options.home, user));
  ATOLL_TRY_ASSIGN(const Instance instance,
                   Instance::claim(home, std::string(kMainInstance), user));
  ATOLL_TRY(sweep_dead_runs(home, user));

  Server server;
  ATOLL_TRY_ASSIGN(server.runtime, start_runtime(server.io, home, instance.name(), user));
  server.http = std::make_unique<net::HttpServer>(
      server.io, net::ServerOptions{},
      [&server](net::Exchange& exchange) { return answer(server, exchange); });
  ATOLL_TRY_ASSIGN(const std::uint16_t port, server.http->listen_tcp(options.listen, "main"));
  server.url = url_of(options.listen, port);
  ATOLL_TRY(become(user));

  ATOLL_TRY_ASSIGN(server.store, store::Store::open(home.state_db()));
  ATOLL_TRY_ASSIGN(const store::DefaultKey key,
                   store::ensure_default_key(*server.store, home.key_file()));
  engine::EngineOptions engine_options;
  engine_options.home = home.path();
  engine_options.templates = home.templates();
  engine_options.max_sandboxes = options.max_sandboxes;
  ATOLL_TRY_ASSIGN(server.engine, engine::Engine::create(server.io, *server.store, *server.runtime,
                                                         engine_options));
  server.api = std::make_unique<api::ApiServer>(*server.engine, *server.store);
  proxy::ProxyOptions proxy_options;
  proxy_options.is_control_path = api::ApiServer::is_control_path;
  server.proxy = std::make_unique<proxy::Proxy>(*server.engine, proxy_options);
  server.gateway = proxy::make_gateway_handler(*server.api, *server.proxy);

  server.runtime->on_lost([&server] {
    log::error(
        "the warden is gone; stopping. Sandboxes go on and are found again at the next start");
    server.exit_code = 1;
    server.io.stop();
  });
  asio::co_spawn(asio::make_strand(server.io), life(server, home, key.secret),
                 [&server](std::exception_ptr failure) {
                   if (failure) {
                     server.exit_code = 1;
                     server.io.stop();
                   }
                 });
  std::vector<std::jthread> threads;
  for (unsigned i = 1; i < options.threads; ++i)
    threads.emplace_back([&server] { server.io.run(); });
  server.io.run();
  threads.clear();
  return server.exit_code;
}

}  // namespace atl::cli
