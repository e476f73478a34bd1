// The executor of a server (src/executor), with the port that it is served on.
#pragma once

#include <memory>
#include <string>

#include "cli/sockets.h"
#include "cli/up.h"
#include "engine/engine.h"
#include "executor/executor.h"

namespace atl::cli {

// invalid_argument names the option.
Result<executor::Settings> settings_of(const ExecutorOptions& options);

class ExecutorDoor {
 public:
  // `engine` outlives it.
  ExecutorDoor(net::asio::io_context& io, engine::Engine& engine, std::string team_id,
               executor::Settings settings);

  Result<void> open(Listening socket);
  // Ends the runs under way, then the connections.
  net::Task<void> shutdown(std::chrono::milliseconds limit);

 private:
  const bool keyed_;
  executor::Executor executor_;
  net::HttpServer http_;
};

}  // namespace atl::cli
