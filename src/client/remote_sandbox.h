// Sandboxes of a server (Atoll's or E2B's own): made, found, ended by its API, and the way into
// them. Coroutines; every call is a connection of its own, so any number may be under way.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/inside.h"
#include "client/server.h"

namespace atl::client {

// Where sandboxes are asked for, and where their traffic goes: to `sandboxes` by header, if that is
// set; else to hosts of the domain that the server or, if it says none, this names; else to the API
// itself by header.
struct Account {
  Server api;
  std::string domain;  // "e2b.app", "sandboxes.test:3443"; empty: none
  std::optional<Server> sandboxes;
};

// Of the variables that E2B's SDKs read: E2B_API_URL or E2B_DOMAIN, E2B_API_KEY, E2B_SANDBOX_URL;
// NODE_EXTRA_CA_CERTS or SSL_CERT_FILE is trusted besides the machine's. failed_precondition: there
// is no key; without URL and domain it is E2B's own service.
Result<Account> account_from_environment();
Result<Account> account_at(std::string_view url, std::string key);
Result<Account> account_of_e2b(std::string key);

struct NewSandbox {
  std::string template_id = "base";
  std::chrono::seconds timeout{300};
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::string> envs;
  std::optional<bool> allow_internet;
  bool pause_on_timeout = false;  // instead of a kill
  bool auto_resume = false;       // traffic wakes it
};

struct RemoteSandbox {
  std::string id;
  std::string template_id;
  std::string alias;
  std::string state;       // "running" or "paused"; empty where the server does not say
  std::string started_at;  // RFC 3339
  std::string end_at;
  std::int64_t cpu_count = 0;
  std::int64_t memory_mb = 0;
  std::int64_t disk_mb = 0;
  std::map<std::string, std::string> metadata;
  std::string access_token;
  std::string traffic_token;
  std::string domain;
};

// Errors: what the server refused (invalid_argument, not_found, unauthenticated,
// resource_exhausted ...), unavailable, deadline_exceeded.
net::Task<Result<RemoteSandbox>> create_sandbox(Account account, NewSandbox options);
// Of a running one: its end is at least `timeout` from now. A paused one is resumed.
net::Task<Result<RemoteSandbox>> connect_sandbox(Account account, std::string id,
                                                 std::chrono::seconds timeout);
net::Task<Result<void>> kill_sandbox(Account account, std::string id);
net::Task<Result<void>> pause_sandbox(Account account, std::string id);
net::Task<Result<void>> set_sandbox_timeout(Account account, std::string id,
                                            std::chrono::seconds timeout);
net::Task<Result<RemoteSandbox>> sandbox_info(Account account, std::string id);
struct SandboxFilter {
  std::map<std::string, std::string> metadata;
  std::vector<std::string> states;  // empty: running and paused
  std::size_t limit = 1000;         // no more than these are asked for
};
net::Task<Result<std::vector<RemoteSandbox>>> list_sandboxes(Account account, SandboxFilter filter);
// One answer for each copy.
net::Task<Result<std::vector<Result<RemoteSandbox>>>> fork_sandbox(Account account, std::string id,
                                                                   std::uint32_t count,
                                                                   std::chrono::seconds timeout);
// The snapshot's id: a template for create_sandbox.
net::Task<Result<std::string>> snapshot_sandbox(Account account, std::string id, std::string name);
net::Task<Result<void>> delete_snapshot(Account account, std::string id);

// The way into it. Errors: invalid_argument: its domain is none.
Result<Inside> inside_of(const Account& account, const RemoteSandbox& sandbox);
// Where HTTP to a port inside goes; Inside::headers are what such a request needs.
Result<std::string> port_url(const Account& account, const RemoteSandbox& sandbox,
                             std::uint16_t port);

}  // namespace atl::client
