#include "agent/test_server.h"

namespace atl::agent::testing {

TestServer::TestServer()
    : state_(current_user("/").name),
      server_(io_, {}, [this](net::Exchange& exchange) { return handle(exchange); }) {
  register_filesystem(router_, state_);
  port_ = *server_.listen_tcp("127.0.0.1:0", "test");
}

net::Task<void> TestServer::handle(net::Exchange& exchange) {
  auto call = router_.handle(exchange);
  if (co_await std::move(call)) co_return;
  auto files = handle_files(exchange, state_);
  if (co_await std::move(files)) co_return;
  auto missing = exchange.response.send(404, {}, "");
  (void)co_await std::move(missing);
}

net::Task<Result<net::HttpClient::Answer>> TestServer::send(net::RequestHead head,
                                                            std::string body) {
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await net::connect_tcp("127.0.0.1", port_));
  net::HttpClient client(std::move(stream));
  co_return co_await client.request(std::move(head), std::move(body), 64 << 20);
}

net::HttpClient::Answer TestServer::request(std::string method, std::string target,
                                            net::Headers headers, std::string body) {
  net::RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.headers = std::move(headers);
  auto answer = run(send(std::move(head), std::move(body)));
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  return answer.ok() ? std::move(*answer) : net::HttpClient::Answer();
}

}  // namespace atl::agent::testing
