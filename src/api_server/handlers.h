// The actions of the control plane, one function each. They get a request that is authenticated and
// whose body was read, and return an answer or an error.
#pragma once

#include <string>
#include <vector>

#include "api_server/api_server.h"
#include "api_server/auth.h"
#include "api_server/reply.h"
#include "api_server/routes.h"

namespace atl::api {

struct Call {
  const net::RequestHead& request;
  const Route& route;
  std::vector<std::string> params;
  Identity who = {};
  std::string body = {};
};

// An id in a path is `id` or `id-clientid`.
Result<SandboxId> parse_path_id(std::string_view text);

class Handlers {
 public:
  Handlers(engine::Engine& engine, store::Store& store, const ApiOptions& options)
      : engine_(engine), store_(store), options_(options) {}

  net::Task<Result<Reply>> run(Call& call);

 private:
  // sandboxes.cc
  net::Task<Result<Reply>> create(Call& call, bool v2);
  Result<Reply> list_v1(Call& call);
  Result<Reply> list_v2(Call& call);
  Result<Reply> info(Call& call);
  net::Task<Result<Reply>> kill(Call& call);
  Result<Reply> set_timeout(Call& call);
  Result<Reply> refresh(Call& call);
  net::Task<Result<Reply>> connect(Call& call);
  net::Task<Result<Reply>> pause(Call& call);
  net::Task<Result<Reply>> resume(Call& call);
  net::Task<Result<Reply>> update_network(Call& call);
  // snapshots.cc
  net::Task<Result<Reply>> fork(Call& call);
  net::Task<Result<Reply>> snapshot(Call& call);
  net::Task<Result<Reply>> rollback(Call& call);
  Result<Reply> list_snapshots(Call& call);
  net::Task<Result<Reply>> delete_template(Call& call);
  // observe.cc
  Result<Reply> sandbox_metrics(Call& call);
  Result<Reply> all_metrics(Call& call);
  net::Task<Result<Reply>> logs_v1(Call& call);
  net::Task<Result<Reply>> logs_v2(Call& call);
  // catalogue.cc
  Result<Reply> list_templates();
  Result<Reply> find_alias(Call& call);
  // admin.cc
  Result<Reply> list_teams(Call& call);
  Result<Reply> list_keys(const std::string& team);
  Result<Reply> create_key(const std::string& team, Call& call);
  Result<Reply> rename_key(Call& call);
  Result<Reply> delete_key(const std::string& team, const std::string& id, Call& call);
  Result<Reply> create_key_of(Call& call);
  Result<Reply> delete_key_of(Call& call);
  Result<Reply> list_nodes();
  Result<Reply> show_node(Call& call);
  net::Task<Result<Reply>> kill_team(Call& call);
  Result<Reply> running_counts();
  // not_found: no such team.
  Result<void> check_team(const std::string& id);
  json::object node_json(bool detail);
  void audit(const Call& call, const std::string& team, const std::string& action,
             const std::string& subject, const std::string& detail);

  engine::Engine& engine_;
  store::Store& store_;
  const ApiOptions& options_;
};

}  // namespace atl::api
