#include "net/stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>

namespace atl::net {
namespace {

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kMuch = 8 * 1024;

class SocketStream final : public Stream {
 public:
  explicit SocketStream(Socket socket)
      : socket_(std::move(socket)),
        read_timer_(socket_.get_executor()),
        write_timer_(socket_.get_executor()),
        alive_(std::make_shared<char>()) {
    boost::system::error_code
        ignored;  // a socket that cannot be non-blocking fails on its first use
    socket_.non_blocking(true, ignored);
  }

  // MSG_DONTWAIT, not only O_NONBLOCK: that one is a property of the connection, and whoever gave
  // us its descriptor could take it away again.
  Task<Result<std::size_t>> read_some(std::span<char> into) override {
    if (must_yield()) co_await asio::post(socket_.get_executor(), asio::use_awaitable);
    while (eager_) {
      const ssize_t n = ::recv(socket_.native_handle(), into.data(), into.size(), MSG_DONTWAIT);
      if (n >= 0) co_return took(std::size_t(n), into.size());
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) co_return errno_error("read");
      break;
    }
    // Most likely nothing is there yet. Asio tries once and then waits, without another system call
    // to say what it waits for.
    turns_ = 0;
    const Waiting waiting(read_timer_);
    begin_wait(read_timer_, read_timeout_);
    auto [ec, n] =
        co_await socket_.async_receive(asio::buffer(into.data(), into.size()), MSG_DONTWAIT, kUse);
    ATOLL_CO_TRY(
        end_wait(read_timer_, ec == asio::error::eof ? boost::system::error_code() : ec, "read"));
    co_return took(n, into.size());
  }

  Task<Result<void>> write_pieces(std::span<const std::string_view> pieces) override {
    if (must_yield()) co_await asio::post(socket_.get_executor(), asio::use_awaitable);
    std::array<iovec, 8> vec{};
    std::size_t count = 0;
    for (std::string_view piece : pieces) {
      if (piece.empty()) continue;
      ATOLL_CHECK(count < vec.size());
      vec[count++] = {const_cast<char*>(piece.data()), piece.size()};
    }
    std::size_t first = 0;
    while (first < count) {
      msghdr message{};
      message.msg_iov = &vec[first];
      message.msg_iovlen = count - first;
      ssize_t n = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) co_return errno_error("write");
        turns_ = 0;
        const Waiting waiting(write_timer_);
        begin_wait(write_timer_, write_timeout_);
        auto [ec] = co_await socket_.async_wait(Socket::wait_write, kUse);
        ATOLL_CO_TRY(end_wait(write_timer_, ec, "write"));
        continue;
      }
      while (first < count && std::size_t(n) >= vec[first].iov_len)
        n -= ssize_t(vec[first++].iov_len);
      if (first < count) {
        vec[first].iov_base = static_cast<char*>(vec[first].iov_base) + n;
        vec[first].iov_len -= std::size_t(n);
      }
    }
    co_return Result<void>();
  }

  Task<void> wait_peer_closed() override {
    for (;;) {
      auto [ec] = co_await socket_.async_wait(Socket::wait_read, kUse);
      if (ec) co_return;
      char byte = 0;
      const ssize_t n = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (n == 0) co_return;
      if (n < 0 && errno != EAGAIN && errno != EINTR) co_return;
      if (n > 0) {
        // Bytes that nobody wants yet hide the end behind them, and keep the socket readable: look
        // now and then.
        asio::steady_timer pause(socket_.get_executor());
        for (;;) {
          if (!socket_.is_open()) co_return;
          pollfd state{socket_.native_handle(), POLLRDHUP, 0};
          if (::poll(&state, 1, 0) != 0) co_return;
          pause.expires_after(std::chrono::milliseconds(100));
          auto [wait_ec] = co_await pause.async_wait(kUse);
          if (wait_ec) co_return;
        }
      }
    }
  }

  void set_read_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    read_timeout_ = timeout;
  }
  void set_write_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    write_timeout_ = timeout;
  }

  void shutdown_write() override { ::shutdown(socket_.native_handle(), SHUT_WR); }

  void close() override {
    boost::system::error_code ignored;  // close(2) releases the descriptor whatever it returns
    socket_.close(ignored);
  }

  void reset() override {
    if (!socket_.is_open()) return;
    const linger hard{1, 0};
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }

  asio::any_io_executor executor() override { return socket_.get_executor(); }
  int native_handle() override { return socket_.is_open() ? socket_.native_handle() : -1; }
  int release() override {
    if (!socket_.is_open()) return -1;
    boost::system::error_code ec;
    const int fd = socket_.release(ec);
    return ec ? -1 : fd;
  }

 private:
  // Reads and writes that never have to wait would keep the thread from everybody else: every few
  // of them go to the back of the queue once.
  bool must_yield() { return ++turns_ % 16 == 0; }

  // After much was read, more is probably there already.
  std::size_t took(std::size_t n, std::size_t wanted) {
    eager_ = n == wanted || n >= kMuch;
    return n;
  }

  // A deadline of its own for each direction: a reader and a writer may wait at the same time. The
  // timer is not touched by every wait: it stays set, and looks at `due` when it fires.
  struct Deadline {
    explicit Deadline(const asio::any_io_executor& executor) : timer(executor) {}
    asio::steady_timer timer;
    std::uint64_t generation = 0;  // a handler of an earlier setting must not touch a later one
    bool set = false;
    std::optional<std::chrono::steady_clock::time_point> due;  // while somebody waits
    bool passed = false;
  };

  // Nobody waits any more, also when a coroutine was cancelled instead of resumed.
  struct Waiting {
    explicit Waiting(Deadline& d) : deadline(d) {}
    ~Waiting() { deadline.due.reset(); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    Deadline& deadline;
  };

  void begin_wait(Deadline& deadline, std::optional<std::chrono::milliseconds> timeout) {
    deadline.passed = false;
    deadline.due.reset();
    if (!timeout) return;
    deadline.due = std::chrono::steady_clock::now() + *timeout;
    if (!deadline.set || *deadline.due < deadline.timer.expiry()) set_timer(deadline);
  }

  static Result<void> end_wait(const Deadline& deadline, const boost::system::error_code& ec,
                               std::string_view name) {
    if (deadline.passed) {
      return make_error(Errc::deadline_exceeded,
                        std::string(name) + ": the peer was silent for too long");
    }
    if (ec) return to_error(ec, name);
    return {};
  }

  void set_timer(Deadline& deadline) {
    deadline.set = true;
    deadline.timer.expires_at(*deadline.due);
    deadline.timer.async_wait(
        [this, &deadline, alive = std::weak_ptr<char>(alive_),
         generation = ++deadline.generation](const boost::system::error_code& ec) {
          if (ec || alive.expired() || generation != deadline.generation) return;
          deadline.set = false;
          if (!deadline.due) return;
          if (std::chrono::steady_clock::now() < *deadline.due) {
            set_timer(deadline);
            return;
          }
          deadline.passed = true;
          boost::system::error_code ignored;
          socket_.cancel(ignored);
        });
  }

  Socket socket_;
  Deadline read_timer_;
  Deadline write_timer_;
  std::shared_ptr<char> alive_;
  unsigned turns_ = 0;
  bool eager_ = false;
  std::optional<std::chrono::milliseconds> read_timeout_;
  std::optional<std::chrono::milliseconds> write_timeout_;
};

template <class Protocol>
Task<Result<std::unique_ptr<Stream>>> connect(typename Protocol::endpoint endpoint,
                                              std::string_view what) {
  typename Protocol::socket socket(co_await asio::this_coro::executor);
  auto [ec] = co_await socket.async_connect(endpoint, kUse);
  if (ec) co_return to_error(ec, what);
  co_return make_stream(Socket(std::move(socket)));
}

}  // namespace

Error to_error(const boost::system::error_code& ec, std::string_view what) {
  const bool is_errno = ec.category() == boost::system::system_category() ||
                        ec.category() == boost::system::generic_category();
  if (is_errno) return errno_error(what, ec.value());
  return make_error(Errc::internal, std::string(what) + ": " + ec.message());
}

Task<Result<void>> Stream::write_all(std::string_view bytes) {
  const std::array<std::string_view, 1> pieces = {bytes};
  co_return co_await write_pieces(pieces);
}

std::unique_ptr<Stream> make_stream(Socket socket) {
  const int on = 1;  // fails on Unix sockets, which have no Nagle
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return std::make_unique<SocketStream>(std::move(socket));
}

Task<Result<std::unique_ptr<Stream>>> connect_unix(std::string path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    co_return make_error(Errc::invalid_argument, "socket path is too long: " + path);
  }
  co_return co_await connect<asio::local::stream_protocol>(
      asio::local::stream_protocol::endpoint(path), "connect");
}

Task<Result<std::unique_ptr<Stream>>> connect_tcp(std::string ip, std::uint16_t port) {
  boost::system::error_code ec;
  const auto address = asio::ip::make_address(ip, ec);
  if (ec) co_return make_error(Errc::invalid_argument, "not an IP address: " + ip);
  co_return co_await connect<asio::ip::tcp>(asio::ip::tcp::endpoint(address, port), "connect");
}

}  // namespace atl::net
