// What the proxy's tests share: a gateway on a port over an engine with fake sandboxes, and a
// service inside them. Only tests use it.
#pragma once

#include <gtest/gtest.h>

#include "api_server/routes.h"
#include "base/json.h"
#include "engine/testing/http.h"
#include "net/http_server.h"
#include "proxy/gateway.h"

namespace atl::proxy {

class GatewayTest : public ::testing::Test {
 protected:
  explicit GatewayTest(engine::EngineOptions options = {}, ProxyOptions proxy_options = {})
      : f(std::move(options)),
        api(*f.engine, *f.store),
        proxy(*f.engine, with_control_paths(std::move(proxy_options))),
        server(f.threads.io, {}, make_gateway_handler(api, proxy)) {
    port = *server.listen_tcp("127.0.0.1:0", "gateway");
  }
  // Here and not in the destructor: handlers of a derived class may still be called.
  void TearDown() override {
    f.run(f.engine->shutdown(std::chrono::milliseconds(2'000), engine::AtShutdown::kill_sandboxes));
    f.run(server.shutdown(std::chrono::milliseconds(0)));
    if (service) f.run(service->shutdown(std::chrono::milliseconds(0)));
  }

  engine::SandboxInfo create(bool secure = false, bool is_public = true) {
    auto command = f.command();
    command.secure = secure;
    command.allow_public_traffic = is_public;
    auto made = f.run(f.engine->create(command));
    EXPECT_TRUE(made.ok());
    return *made;
  }
  static net::Headers to(const SandboxId& id, int sandbox_port = 49983) {
    return {{"E2b-Sandbox-Id", id.str()}, {"E2b-Sandbox-Port", std::to_string(sandbox_port)}};
  }
  static std::string raw_headers(const SandboxId& id, int sandbox_port = 49983) {
    return "Host: localhost\r\nE2b-Sandbox-Id: " + id.str() +
           "\r\nE2b-Sandbox-Port: " + std::to_string(sandbox_port) + "\r\n";
  }
  engine::testing::Got get(const std::string& target, net::Headers headers) {
    return engine::testing::fetch(f, port, "GET", target, std::move(headers));
  }
  // Opens port 8000 of every sandbox with this handler behind it.
  void serve(net::Handler handler) {
    service =
        std::make_unique<net::HttpServer>(f.threads.io, net::ServerOptions{}, std::move(handler));
    f.runtime.open_ports[8000] = *service->listen_tcp("127.0.0.1:0", "service");
  }

  engine::testing::Fixture f;
  api::ApiServer api;
  Proxy proxy;
  net::HttpServer server;
  std::unique_ptr<net::HttpServer> service;
  std::uint16_t port = 0;

 private:
  static ProxyOptions with_control_paths(ProxyOptions options) {
    options.is_control_path = api::is_control_path;
    return options;
  }
};

}  // namespace atl::proxy
