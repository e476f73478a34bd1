// Server-sent events as far as MCP uses them: messages as the data of events.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atl::mcp {

// One event. `data` has no line breaks, as serialised JSON has none.
std::string sse_event(std::string_view data);
inline constexpr std::string_view kSseComment = ": keep-alive\n\n";

// Takes bytes as they come, gives the data of every event that is complete.
class SseReader {
 public:
  explicit SseReader(std::size_t limit) : limit_(limit) {}
  // resource_exhausted: an event is longer than the limit.
  Result<std::vector<std::string>> feed(std::string_view bytes);

 private:
  std::size_t limit_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace atl::mcp
