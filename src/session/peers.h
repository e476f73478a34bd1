// Peers: the other servers that share the table, as the manager of sessions sees them. What is
// asked of one is asked for the team, by its name.
//
// unavailable: the node does not answer, also not when it was asked again for a while.
#pragma once

#include <string>
#include <vector>

#include "session/sessions.h"

namespace atl::session {

// What names a session among all: keys are unique in a team.
struct Slot {
  std::string team;  // its name
  std::string key;
  std::string text() const { return team + '\n' + key; }
};

class Peers {
 public:
  virtual ~Peers() = default;
  virtual net::Task<Result<Acquired>> acquire(std::string node, Slot slot, Options options) = 0;
  virtual net::Task<Result<void>> pause(std::string node, Slot slot) = 0;
  virtual net::Task<Result<void>> remove(std::string node, Slot slot) = 0;
  virtual net::Task<Result<Session>> info(std::string node, Slot slot) = 0;
  // Those that it has itself.
  virtual net::Task<Result<std::vector<Session>>> list(std::string node, std::string team) = 0;
  // Has it been heard of lately?
  virtual net::Task<Result<bool>> alive(std::string node) = 0;
};

}  // namespace atl::session
