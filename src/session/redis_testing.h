// A real redis-server for tests: on a free port of loopback, its files in a temporary directory.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "session/redis.h"

namespace atl::session::testing {

class RedisServer {
 public:
  RedisServer();
  ~RedisServer();
  // False: redis-server is not installed.
  static bool installed();
  void start();
  void stop();    // what it holds is on disk then
  void forget();  // what is there; while it is stopped
  RedisAddress address() const;
  const std::string& password() const { return password_; }

 private:
  // False: it ended at once, as when somebody else has the port.
  bool launch();

  std::filesystem::path dir_;
  std::uint16_t port_ = 0;
  std::string password_ = "open sesame";
  int pid_ = 0;
};

}  // namespace atl::session::testing

#define ATOLL_NEEDS_REDIS()                               \
  if (!::atl::session::testing::RedisServer::installed()) \
  GTEST_SKIP() << "redis-server is not installed (Debian package redis-server)"
