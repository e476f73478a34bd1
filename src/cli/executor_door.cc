#include "cli/executor_door.h"

#include "base/log.h"
#include "proxy/inside.h"

namespace atl::cli {
namespace {

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("[::1]");
}

}  // namespace

Result<executor::Settings> settings_of(const ExecutorOptions& options) {
  const auto named = [](std::string_view option, auto parsed) {
    return parsed.ok() ? std::move(parsed)
                       : decltype(parsed)(std::move(parsed).error().with(option));
  };
  executor::Settings out;
  out.key = options.key;
  ATOLL_TRY_ASSIGN(out.time, named("--executor-timeout", executor::parse_time(options.time)));
  ATOLL_TRY_ASSIGN(out.memory_bytes,
                   named("--executor-memory", executor::parse_memory(options.memory)));
  ATOLL_TRY_ASSIGN(out.rate, named("--executor-rate", executor::parse_rate(options.rate)));
  out.pool = options.pool;
  out.template_name = options.template_name;
  out.static_check = options.static_check;
  out.offline = options.offline;
  return out;
}

ExecutorDoor::ExecutorDoor(net::asio::io_context& io, engine::Engine& engine, std::string team_id,
                           executor::Settings settings)
    : keyed_(!settings.key.empty()),
      executor_(
          io, engine, {.team_id = std::move(team_id), .key_id = "executor", .peer = {}},
          [&engine](const engine::SandboxInfo& sandbox) {
            return proxy::inside_of(engine, sandbox.record.id, sandbox.access_token.value_or(""));
          },
          std::move(settings)),
      http_(io, net::ServerOptions{},
            [this](net::Exchange& exchange) { return executor_.handle(exchange); }) {}

Result<void> ExecutorDoor::open(Listening socket) {
  if (!keyed_ && !is_loopback(socket.address)) {
    log::warn(
        "everybody who reaches the executor's port may run code: --executor-key asks for a key",
        {{"address", socket.address}});
  }
  executor_.sweep();
  return http_.listen_fd(socket.fd.release(), "executor");
}

net::Task<void> ExecutorDoor::shutdown(std::chrono::milliseconds limit) {
  auto ending = executor_.shutdown(limit);
  co_await std::move(ending);
  auto draining = http_.shutdown(limit);
  co_await std::move(draining);
}

}  // namespace atl::cli
