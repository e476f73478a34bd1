#include "cli/embedded.h"

#include <unistd.h>

#include "base/ids.h"

namespace atl::cli {

Result<std::unique_ptr<Embedded>> Embedded::start(boost::asio::io_context& io,
                                                  const std::string& home_path) {
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY_ASSIGN(const Home home, Home::open(home_path, user));
  ATOLL_TRY(sweep_dead_runs(home, user));
  ATOLL_TRY_ASSIGN(Instance instance, Instance::claim(home, "run-" + random_base36(12), user));
  std::string db = home.path() + "/state/" + instance.name() + ".db";
  std::unique_ptr<Embedded> out(new Embedded(io, std::move(instance), std::move(db)));
  ATOLL_TRY_ASSIGN(out->runtime_, start_runtime(io, home, out->instance_.name(), user));
  ATOLL_TRY(become(user));
  ATOLL_TRY_ASSIGN(out->store_, store::Store::open(out->db_));
  engine::EngineOptions options;
  options.home = home.path();
  options.templates = home.templates();
  ATOLL_TRY_ASSIGN(out->engine_, engine::Engine::create(io, *out->store_, *out->runtime_, options));
  return out;
}

Embedded::~Embedded() {
  egress_.reset();
  engine_.reset();
  store_.reset();
  remove_state();
}

void Embedded::remove_state() {
  for (const char* suffix : {"", "-wal", "-shm"}) ::unlink((db_ + suffix).c_str());
}

net::Task<Result<Inside>> Embedded::create(std::string template_name, std::chrono::seconds timeout,
                                           std::map<std::string, std::string> envs) {
  auto starting = engine_->start();
  ATOLL_CO_TRY(co_await std::move(starting));
  auto asking = runtime_->egress_sockets();
  ATOLL_CO_TRY_ASSIGN(const runtime::EgressSockets sockets, co_await std::move(asking));
  if (sockets.proxy >= 0) {
    ATOLL_CO_TRY_ASSIGN(egress_, egress::Egress::create(io_, sockets, engine_->egress(), {}));
  }
  engine::CreateCommand command;
  command.caller.team_id = store_->default_team().id;
  command.template_reference = std::move(template_name);
  command.timeout = timeout;
  for (auto& [name, value] : envs) command.envs[name] = std::move(value);
  command.secure = true;
  auto creating = engine_->create(std::move(command));
  ATOLL_CO_TRY_ASSIGN(const engine::SandboxInfo sandbox, co_await std::move(creating));
  co_return inside_of(*runtime_, sandbox.record.id, sandbox.access_token.value_or(""));
}

net::Task<void> Embedded::shutdown() {
  return engine_->shutdown(std::chrono::seconds(10), engine::AtShutdown::kill_sandboxes);
}

}  // namespace atl::cli
