// The child of a standby (standby.h): connections to its sockets become connections to the server
// that runs. It reads server.json, which the user atoll wrote, and no byte of what it carries.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/json.h"
#include "base/log.h"
#include "cli/remote.h"
#include "cli/standby.h"
#include "cli/supervisor.h"
#include "engine/side_task.h"
#include "sys/self.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kBuffer = 64 * 1024;
constexpr std::chrono::milliseconds kAgain{25};
constexpr std::chrono::seconds kHalfClosed{30};
constexpr std::size_t kMaxConnections = 4'000;

std::size_t open_connections = 0;  // one thread has them all

net::Task<void> sleep() {
  asio::steady_timer timer(co_await asio::this_coro::executor, kAgain);
  co_await timer.async_wait(kUse);
}

// Where the server serves what `fact` of server.json names.
Result<HostPort> find_active(const Home& home, const char* fact) {
  ATOLL_TRY_ASSIGN(const std::string text, read_file(home.server_file()));
  ATOLL_TRY_ASSIGN(const json::value facts, parse_json(text));
  const std::string url = text_of(facts, fact);
  const std::size_t host = url.find("://");
  return split_address(host == std::string::npos ? url : url.substr(host + 3));
}

// When there is one; until then whoever calls waits.
net::Task<std::unique_ptr<net::Stream>> dial_active(const Home& home, const char* fact) {
  for (;;) {
    if (auto found = find_active(home, fact); found.ok()) {
      auto connecting = net::connect_tcp(found->host, found->port);
      auto stream = co_await std::move(connecting);
      if (stream.ok()) co_return std::move(*stream);
    }
    auto waiting = sleep();
    co_await std::move(waiting);
  }
}

net::Task<void> carry(net::Stream& from, net::Stream& to, bool& orderly) {
  const auto buffer = std::make_unique_for_overwrite<char[]>(kBuffer);
  for (;;) {
    auto reading = from.read_some(std::span<char>(buffer.get(), kBuffer));
    auto n = co_await std::move(reading);
    if (!n.ok()) break;
    if (*n == 0) {
      orderly = true;
      to.shutdown_write();
      to.set_read_timeout(kHalfClosed);
      co_return;
    }
    auto writing = to.write_all(std::string_view(buffer.get(), *n));
    if (!(co_await std::move(writing)).ok()) break;
  }
  // A broken connection on one side is one on the other.
  from.reset();
  to.reset();
}

net::Task<void> join(std::unique_ptr<net::Stream> client, std::unique_ptr<net::Stream> server) {
  bool up = false;
  bool down = false;
  {
    engine::SideTask uplink(co_await asio::this_coro::executor, carry(*client, *server, up));
    auto carrying = carry(*server, *client, down);
    co_await std::move(carrying);
    if (down) {
      auto waiting = uplink.wait(kHalfClosed);
      co_await std::move(waiting);
    }
    auto stopping = uplink.stop();
    co_await std::move(stopping);
  }
  --open_connections;
}

net::Task<void> serve_socket(const Home& home, int fd, const char* fact) {
  asio::posix::stream_descriptor listener(co_await asio::this_coro::executor, fd);
  for (;;) {
    co_await listener.async_wait(asio::posix::stream_descriptor::wait_read, kUse);
    if (open_connections >= kMaxConnections) {
      auto waiting = sleep();
      co_await std::move(waiting);
      continue;
    }
    auto dialling = dial_active(home, fact);
    auto server = co_await std::move(dialling);
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const int client =
        ::accept4(fd, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) {
      auto waiting = sleep();
      co_await std::move(waiting);
      continue;
    }
    const auto executor = co_await asio::this_coro::executor;
    net::Socket socket(executor, asio::generic::stream_protocol(peer.ss_family, IPPROTO_TCP),
                       client);
    ++open_connections;
    asio::co_spawn(executor, join(net::make_stream(std::move(socket)), std::move(server)),
                   asio::detached);
  }
}

}  // namespace

Result<int> relay_connections(const ServeOptions& options) {
  const pid_t parent = ::getppid();
  ::setsid();  // the terminal's signals are for the supervisor
  ATOLL_TRY(configure_log(options));
  ::signal(SIGPIPE, SIG_IGN);
  sys::raise_open_files();
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY(become(user));
  // After the change of user, which clears it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return errno_error("PR_SET_PDEATHSIG");
  if (::getppid() != parent) return make_error(Errc::aborted, "the supervisor is gone");
  const Home home = Home::at(options.home);
  asio::io_context io(1);
  asio::co_spawn(io, serve_socket(home, kMainFd, "url"), asio::detached);
  if (has_word(options.supervised, "tls"))
    asio::co_spawn(io, serve_socket(home, kTlsFd, "tls"), asio::detached);
  if (has_word(options.supervised, "executor"))
    asio::co_spawn(io, serve_socket(home, kExecutorFd, "executor"), asio::detached);
  io.run();
  return 0;
}

}  // namespace atl::cli
