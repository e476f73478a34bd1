// Sessions: one sandbox per conversation. A caller names a key; whoever asks for that key, from
// wherever, gets the same sandbox: running, resumed or, when it is gone, a new one.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "client/inside.h"
#include "engine/commands.h"

namespace atl::session {

using store::StringMap;

// What a later call changes in a session that is there. The rest (template, envs, network) is what
// its sandbox was made with and stays.
struct Update {
  std::optional<std::chrono::seconds> timeout;
  std::optional<std::chrono::seconds> pause_after;
  std::optional<std::chrono::seconds> ttl;
  std::optional<StringMap> metadata;
  std::optional<std::string> workspace;
};

struct Options {
  std::string template_reference = "code-interpreter-v1";
  std::chrono::seconds timeout{900};      // of the sandbox; its end is a pause, not a kill
  std::chrono::seconds pause_after{900};  // idle that long, it is paused; 0: never
  std::chrono::seconds ttl{12 * 3600};    // unused that long, key and sandbox are forgotten
  StringMap metadata;
  StringMap envs;
  std::optional<bool> allow_internet;
  std::string network = "{}";  // JSON object as in a create
  std::string workspace;       // name; empty: none
  Update update;               // by default a session that is there stays as it is
};

enum class Came { created, resumed, reused };

struct Session {
  std::string key;
  std::string sandbox_id;
  std::string state;  // "running", "paused", "creating", "gone", "unreachable" (its node)
  Options options;
  Timestamp created_at{};
  Timestamp used_at{};
  std::string node;                 // the server that has the sandbox
  std::optional<Timestamp> end_at;  // of the sandbox's run: when it is paused, or was
};

// A session that was asked for and whose sandbox runs now.
struct Acquired {
  Session session;
  Came came = Came::reused;
  engine::SandboxInfo sandbox;
  client::Inside inside;  // how to work in it, also when it is on another node
};

class Sessions {
 public:
  virtual ~Sessions() = default;
  // invalid_argument: the key or the options; unavailable: the shared store, or the node that has
  // the sandbox, does not answer: nothing was made or lost. Errors of create.
  virtual net::Task<Result<Acquired>> acquire(engine::Caller caller, std::string key,
                                              Options options) = 0;
  // not_found: no such session. Paused already is fine. Answers when the sandbox can no longer be
  // reached; writing its memory to files may take longer.
  virtual net::Task<Result<void>> pause(engine::Caller caller, std::string key) = 0;
  // Kills and forgets; fine when there is none.
  virtual net::Task<Result<void>> remove(engine::Caller caller, std::string key) = 0;
  virtual net::Task<Result<Session>> info(engine::Caller caller, std::string key) = 0;
  virtual net::Task<Result<std::vector<Session>>> list(engine::Caller caller) = 0;
};

}  // namespace atl::session
