// Calls to the agent inside, each over a connection of its own. Inside of src/client.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "client/inside.h"
#include "rpc/client.h"

namespace atl::client {

// What an agent may take for a call that is no stream.
inline constexpr std::chrono::milliseconds kCallTime{60'000};

// `user` empty: the default one.
net::Headers agent_headers(const Inside& inside, const std::string& user);

// What callers branch on, from what agents and proxies of either make answer.
Error agent_error(Error error);
// The same for /files and other plain answers.
Error plain_error(int status, std::string_view body);

// Closes a connection when its time is over, so that whoever waits for it fails. On the stream's
// executor, as everything that uses the stream.
class Guard {
 public:
  // Zero: never.
  Guard(net::Stream& stream, std::chrono::milliseconds limit);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  bool fired() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// `in` and `out` outlive the call.
net::Task<Result<void>> call_agent(Inside inside, std::string path,
                                   const google::protobuf::Message& in,
                                   google::protobuf::Message& out, std::string user = {});

}  // namespace atl::client
