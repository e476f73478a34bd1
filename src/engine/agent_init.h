// The first request to the agent of a new sandbox: who it is, its token, its variables.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "net/stream.h"
#include "net/task.h"
#include "store/records.h"

namespace atl::engine {

struct AgentInit {
  std::string sandbox_id;
  std::string template_id;
  std::string access_token;  // empty: the agent asks for none
  store::StringMap envs;
  std::string default_user = "user";
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpu_count = 0;
  Timestamp timestamp{};
};

std::string encode(const AgentInit& init);

// POST /init, within `limit` for each step. Anything but 204 is an error; what the agent says is
// untrusted and shown cut short.
net::Task<Result<void>> send_init(std::unique_ptr<net::Stream> stream, AgentInit init,
                                  std::chrono::milliseconds limit);

}  // namespace atl::engine
