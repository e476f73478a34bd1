#include "session/redis_testing.h"

#include <arpa/inet.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

extern char** environ;

namespace atl::session::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "/usr/bin/redis-server";
constexpr std::chrono::seconds kStartTime{30};
constexpr std::chrono::milliseconds kLookAgain{10};
constexpr int kPorts = 5;  // that are tried

// Free just now. Redis cannot be told to take any.
std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return ntohs(address.sin_port);
}

// It listens before it has read its files.
bool answers(std::uint16_t port, const std::string& password) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  std::string said;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string ask = "AUTH \"" + password + "\"\r\nPING\r\n";
    (void)!::write(fd, ask.data(), ask.size());
    ::shutdown(fd, SHUT_WR);
    char buffer[512];
    for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
      said.append(buffer, std::size_t(n));
  }
  ::close(fd);
  return said.find("+PONG") != std::string::npos;
}

}  // namespace

bool RedisServer::installed() { return fs::exists(kProgram); }

RedisServer::RedisServer() {
  std::string pattern = (fs::temp_directory_path() / "atoll-redis-XXXXXX").string();
  dir_ = mkdtemp(pattern.data());
  for (int attempt = 0; attempt < kPorts; ++attempt) {
    port_ = free_port();
    if (launch()) return;
  }
  ADD_FAILURE() << "redis-server does not start";
}

RedisServer::~RedisServer() {
  stop();
  fs::remove_all(dir_);
}

// Its clients know the port: there is no other one.
void RedisServer::start() {
  const auto until = std::chrono::steady_clock::now() + kStartTime;
  while (!launch()) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "redis-server does not start again";
    std::this_thread::sleep_for(kLookAgain);
  }
}

bool RedisServer::launch() {
  const std::string port = std::to_string(port_);
  const std::string dir = dir_.string();
  const std::vector<std::string> words = {
      kProgram, "--bind", "127.0.0.1",     "--port",  port,        "--dir",     dir,
      "--save", "60 1",   "--requirepass", password_, "--logfile", dir + "/log"};
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  if (::posix_spawn(&pid_, kProgram, nullptr, nullptr, argv.data(), environ) != 0) {
    pid_ = 0;
    return false;
  }
  const auto until = std::chrono::steady_clock::now() + kStartTime;
  while (std::chrono::steady_clock::now() < until) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = 0;
      return false;
    }
    if (answers(port_, password_)) return true;
    std::this_thread::sleep_for(kLookAgain);
  }
  stop();
  return false;
}

void RedisServer::stop() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void RedisServer::forget() { fs::remove(dir_ / "dump.rdb"); }

RedisAddress RedisServer::address() const {
  RedisAddress out;
  out.host = "127.0.0.1";
  out.port = port_;
  out.password = password_;
  out.database = 3;
  return out;
}

}  // namespace atl::session::testing
