// Helpers of this folder's tests: a scratch directory, the user who runs them, coroutines run to
// their end.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "agent/users.h"
#include "net/task.h"

namespace atl::agent::testing {

// Removed with everything in it. The path has no links and no trailing slash.
class TempDir {
 public:
  TempDir() {
    std::string pattern = std::filesystem::canonical(std::filesystem::temp_directory_path()) /
                          "atoll-agent-test-XXXXXX";
    ATOLL_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Whoever runs the tests, with `home` as home directory.
inline User current_user(const std::string& home) {
  system_users().refresh();
  User user;
  user.uid = ::geteuid();
  user.gid = ::getegid();
  user.name = system_users().user_name(user.uid);
  user.groups = {user.gid};
  user.home = home;
  return user;
}

template <class T>
net::Task<void> keep_result(net::Task<T> task, std::optional<T>& result) {
  result.emplace(co_await std::move(task));
}

// Runs a coroutine until it is done; an exception of it is thrown on.
template <class T>
T run_task(net::asio::io_context& io, net::Task<T> task) {
  std::optional<T> result;
  std::exception_ptr failure;
  bool done = false;
  net::asio::co_spawn(io, keep_result(std::move(task), result), [&](std::exception_ptr thrown) {
    failure = thrown;
    done = true;
  });
  io.restart();
  while (!done && io.run_one() > 0) {
  }
  if (failure) std::rethrow_exception(failure);
  ATOLL_CHECK(result.has_value());
  return std::move(*result);
}

template <class T>
T run_task(net::Task<T> task) {
  net::asio::io_context io;
  return run_task(io, std::move(task));
}

}  // namespace atl::agent::testing
