// LogRing: what happened in the sandbox, for its owner: processes that began and ended, output of
// the start command, files that could not be served. Kept in memory, the newest entries only.
//
// Served to the control plane by GET /logs?after=N as
//   {"entries":[{"seq":1,"timestamp":"<RFC 3339>","level":"info","message":"...",
//                "fields":{"k":"v"}}],"next":2}
// with entries whose seq is greater than N, oldest first, at most kLogPage of them. `next` is the
// seq that follows the last one told, so that `after = next - 1` goes on from there. Numbers begin
// at 1 with every boot; a gap says that entries were dropped before they were asked for.
// Owned by Agent, touched by its one thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace atl::agent {

inline constexpr std::size_t kLogEntries = 2000;
inline constexpr std::size_t kLogBytes = 1 << 20;
inline constexpr std::size_t kLogMessage = 4096;  // longer texts are cut
inline constexpr std::size_t kLogField = 1024;
inline constexpr std::size_t kLogPage = 500;
inline constexpr std::size_t kLogPageBytes = 512 << 10;

using LogFields = std::map<std::string, std::string>;

class LogRing {
 public:
  enum class Level : std::uint8_t { info, warn, error };

  void add(Level level, std::string_view message, LogFields fields = {});
  // The answer to /logs.
  json::object after(std::uint64_t seq) const;
  std::uint64_t last() const { return next_ - 1; }

 private:
  struct Entry {
    std::uint64_t seq;
    std::chrono::system_clock::time_point time;
    Level level;
    std::string message;
    LogFields fields;
    std::size_t bytes() const;
  };
  std::deque<Entry> entries_;
  std::size_t bytes_ = 0;
  std::uint64_t next_ = 1;
};

// Valid UTF-8 of at most `limit` bytes: broken sequences become U+FFFD.
std::string printable(std::string_view text, std::size_t limit);

}  // namespace atl::agent
