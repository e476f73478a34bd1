// Redis: a client for coroutines over hiredis.
//
// hiredis blocks, so it runs on a few threads of its own, each with one connection. Commands wait
// in a bounded queue; each has a deadline, in the queue too. A connection that fails is made again
// for the next command, so that an outage ends by itself. A command that met a connection which
// the server had closed meanwhile is sent once more: it may be executed twice.
//
// Errors are `unavailable`, whatever happened, and name the address; then a command may have been
// executed or not.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/task.h"

namespace atl::session {

struct RedisAddress {
  std::string host;
  std::uint16_t port = 6379;
  std::string user;      // empty: the default one
  std::string password;  // empty: none
  unsigned database = 0;
  // Without the password.
  std::string shown() const;
};

// redis://[[user]:password@]host[:port][/database]; user and password percent-encoded.
// invalid_argument.
Result<RedisAddress> parse_redis_url(std::string_view url);

struct RedisValue {
  enum class Kind : std::uint8_t { nil, integer, text, list };
  Kind kind = Kind::nil;
  std::int64_t integer = 0;
  std::string text;
  std::vector<RedisValue> items;
};

struct RedisOptions {
  unsigned threads = 2;
  std::size_t queue = 1024;
  std::chrono::milliseconds connect_time{1'000};
  std::chrono::milliseconds command_time{2'000};
  std::chrono::milliseconds deadline{3'000};  // from the call to the answer
};

class Redis {
 public:
  explicit Redis(RedisAddress address, RedisOptions options = {});
  // Waits for the commands that are being executed; those in the queue fail.
  ~Redis();
  Redis(const Redis&) = delete;
  Redis& operator=(const Redis&) = delete;

  // Call on a strand.
  net::Task<Result<RedisValue>> run(std::vector<std::string> command);
  // A Lua script, which is executed as a whole.
  net::Task<Result<RedisValue>> eval(std::string_view script, std::vector<std::string> keys,
                                     std::vector<std::string> arguments);
  const RedisAddress& address() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace atl::session
