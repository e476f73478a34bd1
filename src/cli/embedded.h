// Embedded: an engine of this process's own with one sandbox, for commands that need no server.
#pragma once

#include <boost/asio/io_context.hpp>
#include <map>
#include <memory>
#include <string>

#include "cli/inside.h"
#include "cli/instance.h"
#include "egress/egress.h"
#include "engine/engine.h"
#include "store/store.h"

namespace atl::cli {

class Embedded {
 public:
  // Starts a warden and gives up root. Preconditions: root, no threads yet.
  static Result<std::unique_ptr<Embedded>> start(boost::asio::io_context& io,
                                                 const std::string& home);
  // After the io_context has stopped.
  ~Embedded();

  // Makes the sandbox. Once; answers when the agent inside does.
  net::Task<Result<Inside>> create(std::string template_name, std::chrono::seconds timeout,
                                   std::map<std::string, std::string> envs);
  // Ends the sandbox.
  net::Task<void> shutdown();
  // Removes the records, which mean nothing without the sandbox.
  void remove_state();
  runtime::Runtime& runtime() { return *runtime_; }

 private:
  Embedded(boost::asio::io_context& io, Instance instance, std::string db)
      : io_(io), instance_(std::move(instance)), db_(std::move(db)) {}

  boost::asio::io_context& io_;
  Instance instance_;
  std::string db_;
  std::unique_ptr<runtime::JailRuntime> runtime_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<egress::Egress> egress_;  // the code's names are resolved here
};

}  // namespace atl::cli
