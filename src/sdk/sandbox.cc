#include <atoll/sandbox.h>

#include "client/interpreter.h"
#include "sdk/state.h"

namespace atl::sdk {
namespace {

constexpr const char* kDefaultTemplate = "code-interpreter-v1";

SandboxInfo info_of(client::RemoteSandbox sandbox) {
  SandboxInfo out;
  out.id = std::move(sandbox.id);
  out.template_id = std::move(sandbox.template_id);
  out.alias = std::move(sandbox.alias);
  out.state = std::move(sandbox.state);
  out.started_at = std::move(sandbox.started_at);
  out.end_at = std::move(sandbox.end_at);
  out.cpu_count = sandbox.cpu_count;
  out.memory_mb = sandbox.memory_mb;
  out.disk_mb = sandbox.disk_mb;
  out.metadata = std::move(sandbox.metadata);
  return out;
}

Result<Sandbox> handle_of(const std::shared_ptr<Core>& core,
                          const atl::Result<client::RemoteSandbox>& sandbox) {
  if (!sandbox.ok()) return public_error(sandbox.error());
  auto inside = client::inside_of(core->account(), *sandbox);
  if (!inside.ok()) return public_error(inside.error());
  auto state = std::make_shared<SandboxState>(SandboxState{core, *sandbox, std::move(*inside)});
  return Sandbox(std::move(state));
}

// Of a sandbox that was just made: one without a way in is of no use to anybody, and killed.
net::Task<atl::Result<client::RemoteSandbox>> reachable(client::Account account,
                                                        atl::Result<client::RemoteSandbox> made) {
  if (!made.ok()) co_return made;
  const auto inside = client::inside_of(account, *made);
  if (inside.ok()) co_return made;
  auto killing = client::kill_sandbox(std::move(account), made->id);
  (void)co_await std::move(killing);  // the first error is the one to tell
  co_return inside.error();
}

net::Task<atl::Result<client::RemoteSandbox>> create_one(client::Account account,
                                                         client::NewSandbox options) {
  auto creating = client::create_sandbox(account, std::move(options));
  auto made = co_await std::move(creating);
  auto checking = reachable(std::move(account), std::move(made));
  co_return co_await std::move(checking);
}

// The coroutines hold the core weakly: it owns them.
using WeakCore = std::weak_ptr<Core>;

Error gone() { return Error{Code::canceled, "the client went away"}; }

net::Task<Result<Sandbox>> make_handle(WeakCore weak,
                                       net::Task<atl::Result<client::RemoteSandbox>> task) {
  auto sandbox = co_await std::move(task);
  const auto core = weak.lock();
  if (!core) co_return gone();
  co_return handle_of(core, sandbox);
}

client::NewSandbox options_of(SandboxOptions options) {
  client::NewSandbox out;
  out.template_id = options.template_id.empty() ? kDefaultTemplate : std::move(options.template_id);
  out.timeout = options.timeout;
  out.metadata = std::move(options.metadata);
  out.envs = std::move(options.envs);
  out.allow_internet = options.allow_internet;
  out.pause_on_timeout = options.pause_on_timeout;
  out.auto_resume = options.auto_resume;
  return out;
}

net::Task<Result<bool>> kill_one(client::Account account, std::string id) {
  auto killing = client::kill_sandbox(std::move(account), std::move(id));
  auto killed = co_await std::move(killing);
  if (killed.ok()) co_return true;
  if (killed.error().code == Errc::not_found) co_return false;
  co_return public_error(killed.error());
}

net::Task<Result<std::vector<SandboxInfo>>> list_all(client::Account account,
                                                     client::SandboxFilter filter) {
  auto listing = client::list_sandboxes(std::move(account), std::move(filter));
  auto found = co_await std::move(listing);
  if (!found.ok()) co_return public_error(found.error());
  std::vector<SandboxInfo> out;
  for (auto& each : *found) out.push_back(info_of(std::move(each)));
  co_return out;
}

net::Task<Result<SandboxInfo>> ask_info(client::Account account, std::string id) {
  auto asking = client::sandbox_info(std::move(account), std::move(id));
  auto info = co_await std::move(asking);
  if (!info.ok()) co_return public_error(info.error());
  co_return info_of(std::move(*info));
}

net::Task<Result<void>> resume_one(client::Account account, std::string id,
                                   std::chrono::seconds timeout) {
  auto connecting = client::connect_sandbox(std::move(account), std::move(id), timeout);
  auto connected = co_await std::move(connecting);
  if (!connected.ok()) co_return public_error(connected.error());
  co_return Result<void>();
}

net::Task<Result<std::vector<Result<Sandbox>>>> fork_all(WeakCore weak, client::Account account,
                                                         std::string id, std::uint32_t count,
                                                         std::chrono::seconds timeout) {
  auto forking = client::fork_sandbox(account, std::move(id), count, timeout);
  auto copies = co_await std::move(forking);
  if (!copies.ok()) co_return public_error(copies.error());
  for (auto& each : *copies) {
    auto checking = reachable(account, std::move(each));
    each = co_await std::move(checking);
  }
  const auto core = weak.lock();
  if (!core) co_return gone();
  std::vector<Result<Sandbox>> out;
  for (const auto& each : *copies) out.push_back(handle_of(core, each));
  co_return out;
}

}  // namespace

Result<Sandbox> Sandbox::create(const Client& client, SandboxOptions options) {
  return create_async(client, std::move(options)).get();
}

std::future<Result<Sandbox>> Sandbox::create_async(const Client& client, SandboxOptions options) {
  const auto core = client.core();
  return core->spawn(
      make_handle(core, create_one(core->account(), options_of(std::move(options)))));
}

Result<Sandbox> Sandbox::connect(const Client& client, const std::string& id,
                                 std::chrono::seconds timeout) {
  return connect_async(client, id, timeout).get();
}

std::future<Result<Sandbox>> Sandbox::connect_async(const Client& client, const std::string& id,
                                                    std::chrono::seconds timeout) {
  const auto core = client.core();
  return core->spawn(make_handle(core, client::connect_sandbox(core->account(), id, timeout)));
}

Result<std::vector<SandboxInfo>> Sandbox::list(const Client& client, ListOptions options) {
  const auto core = client.core();
  client::SandboxFilter filter{std::move(options.metadata), std::move(options.states),
                               options.limit};
  return core->wait(list_all(core->account(), std::move(filter)));
}

Result<void> Sandbox::kill(const Client& client, const std::string& id) {
  const auto core = client.core();
  return core->wait(publish<void>(client::kill_sandbox(core->account(), id)));
}

Result<void> Sandbox::delete_snapshot(const Client& client, const std::string& snapshot_id) {
  const auto core = client.core();
  return core->wait(publish<void>(client::delete_snapshot(core->account(), snapshot_id)));
}

const std::string& Sandbox::id() const { return state_->sandbox.id; }

Result<SandboxInfo> Sandbox::info() const {
  const auto state = state_;
  return state->core->wait(ask_info(state->core->account(), state->sandbox.id));
}

Result<bool> Sandbox::kill() { return kill_async().get(); }

std::future<Result<bool>> Sandbox::kill_async() {
  return state_->core->spawn(kill_one(state_->core->account(), state_->sandbox.id));
}

Result<void> Sandbox::pause() { return pause_async().get(); }

std::future<Result<void>> Sandbox::pause_async() {
  return state_->core->spawn(
      publish<void>(client::pause_sandbox(state_->core->account(), state_->sandbox.id)));
}

Result<void> Sandbox::resume(std::chrono::seconds timeout) { return resume_async(timeout).get(); }

std::future<Result<void>> Sandbox::resume_async(std::chrono::seconds timeout) {
  return state_->core->spawn(resume_one(state_->core->account(), state_->sandbox.id, timeout));
}

Result<void> Sandbox::set_timeout(std::chrono::seconds timeout) {
  const auto state = state_;
  return state->core->wait(publish<void>(
      client::set_sandbox_timeout(state->core->account(), state->sandbox.id, timeout)));
}

Result<std::vector<Result<Sandbox>>> Sandbox::fork(std::uint32_t count,
                                                   std::chrono::seconds timeout) {
  return fork_async(count, timeout).get();
}

std::future<Result<std::vector<Result<Sandbox>>>> Sandbox::fork_async(
    std::uint32_t count, std::chrono::seconds timeout) {
  return state_->core->spawn(
      fork_all(state_->core, state_->core->account(), state_->sandbox.id, count, timeout));
}

Result<std::string> Sandbox::snapshot(std::string name) {
  return snapshot_async(std::move(name)).get();
}

std::future<Result<std::string>> Sandbox::snapshot_async(std::string name) {
  return state_->core->spawn(publish<std::string>(
      client::snapshot_sandbox(state_->core->account(), state_->sandbox.id, std::move(name))));
}

Sandbox::PortAddress Sandbox::port(std::uint16_t port) const {
  PortAddress out;
  // It was possible when the handle was made.
  if (auto url = client::port_url(state_->core->account(), state_->sandbox, port); url.ok())
    out.url = std::move(*url);
  for (const auto& field : state_->inside.headers(port)) {
    if (!net::iequals(field.name, "Host")) out.headers[field.name] = field.value;
  }
  return out;
}

}  // namespace atl::sdk
