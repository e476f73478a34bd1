#include "cli/inside.h"

#include "proxy/service.h"

namespace atl::cli {
namespace {

net::Task<Result<net::HttpClient>> connect_embedded(runtime::Runtime& runtime, SandboxId id,
                                                    std::uint16_t port) {
  auto connecting = runtime.connect_agent(id);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(connecting));
  if (port != kAgentPort) {
    auto dialling = proxy::connect_service(std::move(stream), port);
    ATOLL_CO_TRY_ASSIGN(stream, co_await std::move(dialling));
  }
  co_return net::HttpClient(std::move(stream));
}

net::Task<Result<net::HttpClient>> connect_remote(const Remote& remote) {
  auto opening = open_stream(remote);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(opening));
  co_return net::HttpClient(std::move(stream));
}

}  // namespace

Inside inside_of(runtime::Runtime& runtime, SandboxId id, std::string token) {
  Inside inside;
  inside.id = id.str();
  inside.token = token;
  inside.connect = [&runtime, id](std::uint16_t port) {
    return connect_embedded(runtime, id, port);
  };
  inside.headers = [token](std::uint16_t port) {
    net::Headers headers;
    headers.add("Host", "localhost");
    if (port == kAgentPort) headers.add("X-Access-Token", token);
    return headers;
  };
  return inside;
}

Inside inside_of(Remote remote, std::string id, std::string token, std::string traffic_token) {
  Inside inside;
  inside.id = id;
  inside.token = token;
  auto shared = std::make_shared<const Remote>(std::move(remote));
  inside.connect = [shared](std::uint16_t) { return connect_remote(*shared); };
  inside.headers = [shared, id, token, traffic_token](std::uint16_t port) {
    return client::headers_for(shared->host, id, port, token, traffic_token);
  };
  return inside;
}

}  // namespace atl::cli
