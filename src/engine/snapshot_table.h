// SnapshotTable: the snapshots of this server, by the names that clients give them. Not
// thread-safe: the engine's mutex guards it.
//
// A client calls a snapshot `[team/]alias[:tag]`, or `template_id[:tag]` when it has no name. Of
// one name and tag there is one snapshot at a time: a newer one takes its place, and the older is
// doomed.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/commands.h"
#include "templates/reference.h"

namespace atl::engine {

// As the API calls it: "alias:tag", or "template_id:tag".
std::string public_id(const store::SnapshotRecord& record);
// The name of a team as it can stand in a reference: "My Team" -> "my-team".
std::string team_slug(std::string_view name);

class SnapshotTable {
 public:
  // Inserts or replaces.
  void put(store::SnapshotRecord record);
  void erase(const std::string& id);
  const store::SnapshotRecord* find(const std::string& id) const;

  // What a reference of this team means; null: nothing that it may see. `slug` is the team's.
  const store::SnapshotRecord* resolve(const std::string& team_id, std::string_view slug,
                                       const templates::Reference& reference) const;
  // The one with this name and tag that is ready; null: none.
  const store::SnapshotRecord* named(const std::string& team_id, std::string_view alias,
                                     std::string_view tag) const;
  // Of any tag, ready or being made: names share a template id.
  std::string template_of(const std::string& team_id, std::string_view alias) const;

  SnapshotPage list(const SnapshotQuery& query) const;
  std::size_t size() const { return records_.size(); }
  std::size_t listed() const;  // how many clients can name

  // While one of these is held it is no garbage, whoever lies over it. May outlive the table, and
  // may be let go of without the mutex.
  using Pin = std::shared_ptr<const void>;
  Pin pin(const std::string& id);
  // Those that nobody can name (doomed, or of forks), that are not pinned and not in `used`: the
  // youngest first, as they may lie over older ones.
  std::vector<std::string> garbage(const std::set<std::string>& used) const;

 private:
  std::map<std::string, store::SnapshotRecord> records_;
  mutable std::map<std::string, std::weak_ptr<const void>> pins_;
};

}  // namespace atl::engine
