// HTTP requests of tests, over loopback: whole exchanges, and raw bytes where the wire itself is
// tested.
#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include "engine/testing/fixture.h"

#include "net/http.h"

namespace atl::engine::testing {

struct Got {
  int status = 0;  // 0: no answer came
  net::Headers headers;
  std::string body;
};

Got fetch(Fixture& f, std::uint16_t port, std::string method, std::string target,
          net::Headers headers = {}, std::string body = {});

// A plain blocking connection.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(std::string_view bytes);
  // Reads until `mark` was seen, the end, an error, or ten seconds.
  std::string read_until(std::string_view mark);
  std::string read_all();
  bool was_reset() const { return reset_; }
  bool ended() const { return ended_; }
  void shutdown_write();
  void close();

 private:
  bool read_more();
  int fd_ = -1;
  std::string seen_;
  bool ended_ = false;
  bool reset_ = false;
};

}  // namespace atl::engine::testing
