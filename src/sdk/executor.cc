#include "client/executor.h"

#include <atoll/executor.h>

#include "sdk/core.h"

namespace atl::sdk {
namespace {

constexpr const char* kDefaultTemplate = "code-interpreter-v1";
// A sandbox whose end never comes (this program dies) lives that much longer than its run.
constexpr std::chrono::seconds kSpare{60};

struct Fresh {
  client::Account account;
  client::NewSandbox options;
  std::string id;  // once it is made
};

net::Task<void> dispose(std::shared_ptr<Fresh> fresh) {
  // A connection may break: once more. A server that is gone has ended it, or its timeout will.
  for (int tries = 0; tries < 2; ++tries) {
    auto killing = client::kill_sandbox(fresh->account, fresh->id);
    const auto killed = co_await std::move(killing);
    if (killed.ok() || killed.error().code != Errc::unavailable) co_return;
  }
}

net::Task<atl::Result<client::Inside>> create(std::shared_ptr<Fresh> fresh) {
  auto creating = client::create_sandbox(fresh->account, fresh->options);
  ATOLL_CO_TRY_ASSIGN(const client::RemoteSandbox sandbox, co_await std::move(creating));
  fresh->id = sandbox.id;
  auto inside = client::inside_of(fresh->account, sandbox);
  if (!inside.ok()) {
    auto disposing = dispose(fresh);
    co_await std::move(disposing);
  }
  co_return inside;
}

StructuredExecution structured(client::Executed executed) {
  StructuredExecution out;
  out.success = executed.success;
  out.output = std::move(executed.output);
  out.execution_time_ms = executed.time_ms;
  out.out = std::move(executed.out);
  out.err = std::move(executed.err);
  if (executed.error) {
    out.error_name = std::move(executed.error->name);
    out.error_value = std::move(executed.error->value);
    out.error_traceback = std::move(executed.error->traceback);
  }
  return out;
}

StructuredExecution not_available(std::string why) {
  StructuredExecution out;
  out.error_name = client::kSandboxError;
  out.error_value = std::move(why);
  out.error_traceback = "";
  return out;
}

StructuredExecution canceled_execution() { return not_available("the client went away"); }

net::Task<StructuredExecution> run(client::Account account, std::string code,
                                   ExecuteOptions options) {
  auto fresh = std::make_shared<Fresh>();
  fresh->account = std::move(account);
  fresh->options.template_id =
      options.template_id.empty() ? kDefaultTemplate : std::move(options.template_id);
  fresh->options.timeout =
      std::chrono::ceil<std::chrono::seconds>(std::max(options.timeout, options.timeout.zero())) +
      kSpare;
  client::SandboxSource source;
  source.create = [fresh] { return create(fresh); };
  source.dispose = [fresh] { return dispose(fresh); };
  client::ExecuteOptions inner{std::move(options.language), options.timeout,
                               std::move(options.envs)};
  auto running = client::execute_structured(std::move(source), std::move(code), std::move(inner));
  auto executed = co_await std::move(running);
  co_return structured(std::move(executed));
}

}  // namespace

std::string StructuredExecution::to_json() const {
  client::Executed executed;
  executed.success = success;
  executed.output = output;
  executed.time_ms = execution_time_ms;
  executed.out = out;
  executed.err = err;
  if (error_name)
    executed.error =
        client::CellError{*error_name, error_value.value_or(""), error_traceback.value_or("")};
  return json::serialize(executed.to_json());
}

StructuredExecution execute_structured(const Client& client, std::string code,
                                       ExecuteOptions options) {
  return execute_structured_async(client, std::move(code), std::move(options)).get();
}

std::future<StructuredExecution> execute_structured_async(const Client& client, std::string code,
                                                          ExecuteOptions options) {
  const auto core = client.core();
  return core->spawn(run(core->account(), std::move(code), std::move(options)), canceled_execution);
}

StructuredExecution execute_structured(const Result<Client>& client, std::string code,
                                       ExecuteOptions options) {
  if (!client.ok()) return not_available(client.error().message);
  return execute_structured(*client, std::move(code), std::move(options));
}

SimpleExecution execute(const Client& client, std::string code, ExecuteOptions options) {
  StructuredExecution all = execute_structured(client, std::move(code), std::move(options));
  SimpleExecution out;
  out.success = all.success;
  out.output = std::move(all.output);
  if (all.error_name) {
    out.error = std::move(*all.error_name);
    if (all.error_value && !all.error_value->empty()) *out.error += ": " + *all.error_value;
  }
  out.execution_time_ms = all.execution_time_ms;
  out.out = std::move(all.out);
  out.err = std::move(all.err);
  return out;
}

}  // namespace atl::sdk
