#include "session/inside.h"

#include "session/dial.h"

namespace atl::session {
namespace {

net::Task<Result<net::HttpClient>> connect_node(std::string ip, std::uint16_t port,
                                                std::chrono::milliseconds limit) {
  auto dialling = dial(std::move(ip), port, limit);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dialling));
  co_return net::HttpClient(std::move(stream));
}

}  // namespace

client::Inside inside_of(std::string ip, std::uint16_t port, std::string id, std::string token,
                         std::string traffic_token, std::chrono::milliseconds connect_time) {
  client::Inside inside;
  inside.id = id;
  inside.token = token;
  inside.connect = [ip, port, connect_time](std::uint16_t) {
    return connect_node(ip, port, connect_time);
  };
  inside.headers = [id, token, traffic_token](std::uint16_t to) {
    return client::headers_for("localhost", id, to, token, traffic_token);
  };
  return inside;
}

}  // namespace atl::session
