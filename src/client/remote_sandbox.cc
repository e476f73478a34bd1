#include "client/remote_sandbox.h"

#include <cstdlib>

#include "base/encoding.h"
#include "client/interpreter.h"

namespace atl::client {
namespace {

constexpr std::size_t kPage = 100;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string trusted_file() {
  std::string file = environment("NODE_EXTRA_CA_CERTS");
  return file.empty() ? environment("SSL_CERT_FILE") : file;
}

Result<Server> trusted(Result<Server> server) {
  if (!server.ok()) return server;
  server->ca_file = trusted_file();
  ATOLL_TRY(load_trust(*server));
  return server;
}

std::map<std::string, std::string> texts_of(const json::value& object, std::string_view name) {
  std::map<std::string, std::string> out;
  const auto* o = object.if_object();
  const auto* map = o != nullptr ? o->if_contains(name) : nullptr;
  if (map == nullptr || !map->is_object()) return out;
  for (const auto& [key, value] : map->get_object()) {
    if (value.is_string()) out[std::string(key)] = std::string(value.get_string());
  }
  return out;
}

// An id becomes a label of a host name and a part of a path: nothing else may be in it.
bool is_id(std::string_view text) {
  if (text.empty() || text.size() > 63) return false;
  for (const char c : text) {
    const bool fits =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    if (!fits) return false;
  }
  return true;
}

Result<RemoteSandbox> sandbox_of(const json::value& body) {
  RemoteSandbox out;
  out.id = text_of(body, "sandboxID");
  if (!is_id(out.id)) return make_error(Errc::data_loss, "the server's answer has no sandbox");
  out.template_id = text_of(body, "templateID");
  out.alias = text_of(body, "alias");
  out.state = text_of(body, "state");
  out.started_at = text_of(body, "startedAt");
  out.end_at = text_of(body, "endAt");
  out.cpu_count = number_of(body, "cpuCount");
  out.memory_mb = number_of(body, "memoryMB");
  out.disk_mb = number_of(body, "diskSizeMB");
  out.metadata = texts_of(body, "metadata");
  out.access_token = text_of(body, "envdAccessToken");
  out.traffic_token = text_of(body, "trafficAccessToken");
  out.domain = text_of(body, "domain");
  return out;
}

json::object object_of(const std::map<std::string, std::string>& map) {
  json::object out;
  for (const auto& [key, value] : map) out[key] = value;
  return out;
}

std::string path_of(const std::string& id, std::string_view action = {}) {
  return "/sandboxes/" + percent_encode(id) + std::string(action);
}

net::Task<Result<void>> call_only(Account account, std::string method, std::string target,
                                  std::optional<json::value> body = std::nullopt) {
  auto calling =
      call_api(std::move(account.api), std::move(method), std::move(target), std::move(body));
  ATOLL_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

// A host of a sandbox: {port}-{id}.{domain}, always by TLS.
net::Task<Result<net::HttpClient>> connect_server(std::shared_ptr<const Server> server,
                                                  std::string label) {
  Server target = *server;
  if (!label.empty()) target.host = label + "." + target.host;
  auto opening = open_stream(std::move(target));
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(opening));
  co_return net::HttpClient(std::move(stream));
}

std::string label_of(const std::string& id, std::uint16_t port) {
  return std::to_string(port) + "-" + id;
}

struct Way {
  Server server;
  bool by_name = false;
};

Result<Way> way_to(const Account& account, const RemoteSandbox& sandbox) {
  const std::string& domain = sandbox.domain.empty() ? account.domain : sandbox.domain;
  Way way{account.sandboxes.value_or(account.api), !account.sandboxes && !domain.empty()};
  if (!way.by_name) return way;
  ATOLL_TRY_ASSIGN(way.server, parse_server("https://" + domain, ""));
  way.server.ca_file = account.api.ca_file;
  way.server.trust = account.api.trust;
  ATOLL_TRY(load_trust(way.server));
  return way;
}

}  // namespace

Result<Account> account_from_environment() {
  const std::string key = environment("E2B_API_KEY");
  if (key.empty()) {
    return make_error(Errc::failed_precondition,
                      "E2B_API_KEY is not set. FIX: `eval \"$(atoll up -d)\"` sets it, and where "
                      "the server is");
  }
  Account account;
  account.domain = environment("E2B_DOMAIN");
  std::string url = environment("E2B_API_URL");
  if (url.empty() && account.domain.empty()) return account_of_e2b(key);
  if (url.empty()) url = "https://api." + account.domain;
  ATOLL_TRY_ASSIGN(account.api, trusted(parse_server(url, key)));
  if (const std::string sandboxes = environment("E2B_SANDBOX_URL"); !sandboxes.empty()) {
    ATOLL_TRY_ASSIGN(account.sandboxes, trusted(parse_server(sandboxes, "")));
  }
  return account;
}

Result<Account> account_at(std::string_view url, std::string key) {
  Account account;
  ATOLL_TRY_ASSIGN(account.api, trusted(parse_server(url, std::move(key))));
  return account;
}

Result<Account> account_of_e2b(std::string key) {
  Account account;
  account.domain = "e2b.app";
  ATOLL_TRY_ASSIGN(account.api, trusted(parse_server("https://api.e2b.app", std::move(key))));
  return account;
}

net::Task<Result<RemoteSandbox>> create_sandbox(Account account, NewSandbox options) {
  json::object body;
  body["templateID"] = options.template_id;
  body["timeout"] = options.timeout.count();
  body["secure"] = true;
  body["metadata"] = object_of(options.metadata);
  body["envVars"] = object_of(options.envs);
  if (options.allow_internet) body["allow_internet_access"] = *options.allow_internet;
  if (options.pause_on_timeout) body["autoPause"] = true;
  if (options.auto_resume) body["autoResume"] = json::object{{"enabled", true}};
  auto calling = call_api(std::move(account.api), "POST", "/sandboxes", std::move(body));
  ATOLL_CO_TRY_ASSIGN(const ApiAnswer answer, co_await std::move(calling));
  co_return sandbox_of(answer.body);
}

net::Task<Result<RemoteSandbox>> connect_sandbox(Account account, std::string id,
                                                 std::chrono::seconds timeout) {
  json::object body{{"timeout", timeout.count()}};
  auto calling = call_api(std::move(account.api), "POST", path_of(id, "/connect"), std::move(body));
  ATOLL_CO_TRY_ASSIGN(const ApiAnswer answer, co_await std::move(calling));
  co_return sandbox_of(answer.body);
}

net::Task<Result<void>> kill_sandbox(Account account, std::string id) {
  return call_only(std::move(account), "DELETE", path_of(id));
}

net::Task<Result<void>> pause_sandbox(Account account, std::string id) {
  return call_only(std::move(account), "POST", path_of(id, "/pause"), json::object());
}

net::Task<Result<void>> set_sandbox_timeout(Account account, std::string id,
                                            std::chrono::seconds timeout) {
  return call_only(std::move(account), "POST", path_of(id, "/timeout"),
                   json::object{{"timeout", timeout.count()}});
}

net::Task<Result<RemoteSandbox>> sandbox_info(Account account, std::string id) {
  auto calling = call_api(std::move(account.api), "GET", path_of(id));
  ATOLL_CO_TRY_ASSIGN(const ApiAnswer answer, co_await std::move(calling));
  co_return sandbox_of(answer.body);
}

net::Task<Result<std::vector<RemoteSandbox>>> list_sandboxes(Account account,
                                                             SandboxFilter filter) {
  std::string query;
  for (const auto& [key, value] : filter.metadata)
    query += (query.empty() ? "" : "&") + percent_encode(key) + "=" + percent_encode(value);
  std::string common = query.empty() ? "" : "&metadata=" + percent_encode(query);
  for (const std::string& state : filter.states) common += "&state=" + percent_encode(state);
  std::vector<RemoteSandbox> out;
  std::string token;
  do {
    std::string target = "/v2/sandboxes?limit=" + std::to_string(kPage) + common;
    if (!token.empty()) target += "&nextToken=" + percent_encode(token);
    auto calling = call_api(account.api, "GET", std::move(target));
    ATOLL_CO_TRY_ASSIGN(const ApiAnswer answer, co_await std::move(calling));
    const json::array* page = answer.body.if_array();
    if (page == nullptr) co_return make_error(Errc::data_loss, "the server's answer is no list");
    for (const json::value& each : *page) {
      if (out.size() == filter.limit) co_return out;
      ATOLL_CO_TRY_ASSIGN(RemoteSandbox sandbox, sandbox_of(each));
      out.push_back(std::move(sandbox));
    }
    token = page->empty() ? "" : std::string(answer.headers.get("x-next-token"));
  } while (!token.empty());
  co_return out;
}

net::Task<Result<std::vector<Result<RemoteSandbox>>>> fork_sandbox(Account account, std::string id,
                                                                   std::uint32_t count,
                                                                   std::chrono::seconds timeout) {
  json::object body{{"count", count}, {"timeout", timeout.count()}};
  auto calling = call_api(std::move(account.api), "POST", path_of(id, "/fork"), std::move(body));
  ATOLL_CO_TRY_ASSIGN(const ApiAnswer answer, co_await std::move(calling));
  const json::array* list = answer.body.if_array();
  if (list == nullptr) co_return make_error(Errc::data_loss, "the server's answer is no list");
  std::vector<Result<RemoteSandbox>> out;
  for (const json::value& each : *list) {
    const json::object* entry = each.if_object();
    const json::value* made = entry != nullptr ? entry->if_contains("sandbox") : nullptr;
    const json::value* error = entry != nullptr ? entry->if_contains("error") : nullptr;
    if (made != nullptr) {
      out.push_back(sandbox_of(*made));
    } else {
      std::string message = error != nullptr ? text_of(*error, "message") : std::string();
      if (message.empty()) message = "the copy was not made";
      out.emplace_back(make_error(Errc::unavailable, std::move(message)));
    }
  }
  co_return out;
}

net::Task<Result<std::string>> snapshot_sandbox(Account account, std::string id, std::string name) {
  json::object body;
  if (!name.empty()) body["name"] = name;
  auto calling =
      call_api(std::move(account.api), "POST", path_of(id, "/snapshots"), std::move(body));
  ATOLL_CO_TRY_ASSIGN(const ApiAnswer answer, co_await std::move(calling));
  std::string snapshot = text_of(answer.body, "snapshotID");
  if (snapshot.empty()) co_return make_error(Errc::data_loss, "the server's answer has no id");
  co_return snapshot;
}

net::Task<Result<void>> delete_snapshot(Account account, std::string id) {
  return call_only(std::move(account), "DELETE", "/templates/" + percent_encode(id));
}

Result<Inside> inside_of(const Account& account, const RemoteSandbox& sandbox) {
  ATOLL_TRY_ASSIGN(Way way, way_to(account, sandbox));
  const bool by_name = way.by_name;
  auto shared = std::make_shared<const Server>(std::move(way.server));
  Inside inside;
  inside.id = sandbox.id;
  inside.token = sandbox.access_token;
  inside.connect = [shared, by_name, id = sandbox.id](std::uint16_t port) {
    return connect_server(shared, by_name ? label_of(id, port) : std::string());
  };
  inside.headers = [shared, by_name, id = sandbox.id, token = sandbox.access_token,
                    traffic = sandbox.traffic_token](std::uint16_t port) {
    return headers_for(by_name ? label_of(id, port) + "." + shared->host : shared->host, id, port,
                       token, traffic);
  };
  return inside;
}

Result<std::string> port_url(const Account& account, const RemoteSandbox& sandbox,
                             std::uint16_t port) {
  ATOLL_TRY_ASSIGN(Way way, way_to(account, sandbox));
  if (way.by_name) way.server.host = label_of(sandbox.id, port) + "." + way.server.host;
  return way.server.url();
}

}  // namespace atl::client
