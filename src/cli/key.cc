#include "cli/key.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/json.h"
#include "cli/home.h"
#include "cli/table.h"
#include "store/keys.h"
#include "store/store.h"

namespace atl::cli {
namespace {

std::string masked(const store::KeyRecord& key) {
  return key.prefix + key.mask_prefix + "…" + key.mask_suffix;
}

json::object as_json(const store::KeyRecord& key) {
  json::object o;
  o["id"] = key.id;
  o["name"] = key.name;
  o["mask"] = masked(key);
  o["createdAt"] = to_rfc3339(key.created_at);
  o["lastUsed"] = key.last_used ? json::value(to_rfc3339(*key.last_used)) : json::value(nullptr);
  return o;
}

Result<int> show(store::Store& store, const Home& home, const KeyOptions& options) {
  ATOLL_TRY_ASSIGN(const store::DefaultKey key, store::ensure_default_key(store, home.key_file()));
  if (options.json) {
    json::object o;
    o["key"] = key.secret;
    fmt::print("{}\n", json::serialize(o));
  } else {
    fmt::print("{}\n", key.secret);
  }
  return 0;
}

Result<void> record(store::Store& store, const std::string& team, const std::string& action,
                    const std::string& subject, const std::string& detail) {
  store::AuditRecord entry;
  entry.at = now();
  entry.team_id = team;
  entry.key_id = "cli";
  entry.action = action;
  entry.subject = subject;
  entry.detail = detail;
  return store.insert_audit(entry);
}

// The team that is meant. `create` makes one that does not exist yet.
Result<std::string> team_of(store::Store& store, const KeyOptions& options) {
  if (options.team.empty()) return store.default_team().id;
  ATOLL_TRY_ASSIGN(const auto found, store.find_team(options.team));
  if (found) return found->id;
  if (options.verb != "create")
    return make_error(Errc::not_found, "there is no team '" + options.team +
                                           "'; atoll key create NAME --team TEAM makes one");
  ATOLL_TRY_ASSIGN(const store::TeamRecord made, store.create_team(options.team));
  return made.id;
}

Result<int> create(store::Store& store, const std::string& team, const KeyOptions& options) {
  if (options.argument.empty())
    return make_error(Errc::invalid_argument, "a key needs a name: atoll key create NAME");
  ATOLL_TRY_ASSIGN(const store::NewKey key, store::create_key(store, team, options.argument));
  ATOLL_TRY(record(store, team, "key.create", key.record.id, options.argument));
  if (options.json) {
    json::object o = as_json(key.record);
    o["key"] = key.secret;
    fmt::print("{}\n", json::serialize(o));
  } else {
    fmt::print("{}\n", key.secret);
    fmt::print(stderr, "This key is shown once; the server keeps only its hash.\n");
  }
  return 0;
}

Result<int> list(store::Store& store, const std::string& team, const KeyOptions& options) {
  ATOLL_TRY_ASSIGN(const auto keys, store.list_keys(team));
  if (options.json) {
    json::array rows;
    for (const auto& key : keys) rows.push_back(as_json(key));
    fmt::print("{}\n", json::serialize(rows));
    return 0;
  }
  Table table({"ID", "NAME", "KEY", "LAST USED"});
  for (const auto& key : keys) {
    table.add({key.id, printable(key.name), masked(key),
               key.last_used ? to_rfc3339(*key.last_used) : "never"});
  }
  table.print();
  return 0;
}

Result<int> remove(store::Store& store, const std::string& team, const KeyOptions& options) {
  if (options.argument.empty())
    return make_error(Errc::invalid_argument,
                      "which key? atoll key rm ID (atoll key ls shows them)");
  ATOLL_TRY_ASSIGN(const bool removed, store.delete_key(team, options.argument));
  if (!removed)
    return make_error(Errc::not_found, "there is no key with the id " + options.argument);
  ATOLL_TRY(record(store, team, "key.delete", options.argument, ""));
  return 0;
}

}  // namespace

Result<int> key_command(const KeyOptions& options) {
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY_ASSIGN(const Home home, Home::open(options.home, user));
  // The store's files must stay the server's, so this command works as the server's user too.
  ATOLL_TRY(become(user));
  ATOLL_TRY_ASSIGN(const auto store, store::Store::open(home.state_db()));
  if (options.verb == "show") return show(*store, home, options);
  if (options.verb == "create" || options.verb == "ls" || options.verb == "rm") {
    ATOLL_TRY_ASSIGN(const std::string team, team_of(*store, options));
    if (options.verb == "create") return create(*store, team, options);
    if (options.verb == "ls") return list(*store, team, options);
    return remove(*store, team, options);
  }
  return make_error(Errc::invalid_argument,
                    "unknown verb '" + options.verb + "': show, create NAME, ls, rm ID");
}

}  // namespace atl::cli
