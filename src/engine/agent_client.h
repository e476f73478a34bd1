// What the engine asks of an agent over its control socket. Everything an agent answers is
// untrusted: bounded, checked, shown cut short.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "net/stream.h"
#include "net/task.h"
#include "store/records.h"

namespace atl::engine {

// The first request to the agent of a new sandbox, and again after a restart of the server: who it
// is, its token, its variables.
struct AgentInit {
  std::string sandbox_id;
  std::string template_id;
  std::string access_token;  // empty: the agent asks for none
  store::StringMap envs;
  std::string default_user = "user";
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpu_count = 0;
  Timestamp timestamp{};
  std::string start_command;  // run once per boot; empty: none
  std::string ca_bundle;      // PEM to trust; empty: none
};

std::string encode(const AgentInit& init);

// POST /init, within `limit` for each step. Anything but 204 is an error.
net::Task<Result<void>> send_init(std::unique_ptr<net::Stream> stream, AgentInit init,
                                  std::chrono::milliseconds limit);

// POST /suspend: it closes every connection from outside and keeps no process that has no state.
// Answers when this connection, the last one, has ended too.
// unimplemented: an agent of an earlier version.
net::Task<Result<void>> send_suspend(std::unique_ptr<net::Stream> stream,
                                     std::chrono::milliseconds limit);

// POST /suspend?soon=1: that will follow; clients that leave from now on have not gone for good.
net::Task<Result<void>> announce_suspend(std::unique_ptr<net::Stream> stream,
                                         std::chrono::milliseconds limit);

// The first request after its memory came back from files. Forked: its memory is a copy of another
// sandbox's.
struct AgentWake {
  AgentInit init;
  bool forked = false;
  std::string seed;      // 64 hex digits, with `forked`
  std::string hostname;  // with `forked`; empty: as it is
};

std::string encode(const AgentWake& wake);

// POST /wake, within `limit`. Anything but 204 is an error.
net::Task<Result<void>> send_wake(std::unique_ptr<net::Stream> stream, AgentWake wake,
                                  std::chrono::milliseconds limit);

// GET /health: does it answer?
net::Task<Result<void>> ask_health(std::unique_ptr<net::Stream> stream,
                                   std::chrono::milliseconds limit);

// POST /warm: its default Python kernel is there and has been warmed. not_found: it has no
// interpreter; unavailable: not yet.
net::Task<Result<void>> ask_warm(std::unique_ptr<net::Stream> stream,
                                 std::chrono::milliseconds limit);

struct AgentLogs {
  struct Entry {
    std::int64_t seq = 0;
    store::LogRecord record;
  };
  std::vector<Entry> entries;  // rising seq, all after the one asked for
};
inline constexpr std::size_t kMaxAgentLines = 500;     // of one answer
inline constexpr std::size_t kMaxAgentMessage = 4096;  // bytes; longer ones are cut
inline constexpr std::size_t kMaxAgentFields = 16;     // of one line
inline constexpr std::size_t kMaxAgentField = 512;     // bytes of a name or a value

// What an answer says; lines that are not as they should be are left out. `latest`: a line cannot
// come from the future.
Result<AgentLogs> parse_agent_logs(std::string_view body, std::int64_t after, Timestamp latest);

// GET /logs?after=N. not_found: the agent keeps none.
net::Task<Result<AgentLogs>> ask_logs(std::unique_ptr<net::Stream> stream, std::string access_token,
                                      std::int64_t after, std::chrono::milliseconds limit);

}  // namespace atl::engine
