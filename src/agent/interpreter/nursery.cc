#include "agent/interpreter/nursery.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "base/log.h"

namespace atl::agent::interpreter {
namespace {

namespace asio = net::asio;
using Descriptor = asio::posix::stream_descriptor;
constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::seconds kAnswerTime{5};
constexpr std::chrono::seconds kEndTime{5};
constexpr std::chrono::milliseconds kAdoptionTime{200};
constexpr std::chrono::milliseconds kAdoptionLook{2};

Result<void> send_fork(int peer, int descriptor) {
  char text[] = {'f', 'o', 'r', 'k'};
  iovec part{text, sizeof text};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  if (::sendmsg(peer, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    return errno_error("ask the nursery");
  return {};
}

Result<pid_t> read_answer(std::string_view answer) {
  constexpr std::string_view kPid = "pid ";
  pid_t pid = 0;
  if (answer.starts_with(kPid)) {
    const std::string_view digits = answer.substr(kPid.size());
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
    if (ec == std::errc() && end == digits.data() + digits.size() && pid > 1) return pid;
  }
  return make_error(Errc::unavailable,
                    "the nursery answered: " + std::string(answer.substr(0, 200)));
}

// Whoever connected, whatever becomes of its number; none where the kernel cannot say.
Fd peer_process(int socket) {
#ifdef SO_PEERPIDFD
  constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
  constexpr int kPeerPidfd = 77;
#endif
  int process = -1;
  socklen_t size = sizeof process;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &process, &size) != 0) return Fd();
  return Fd(process);
}

// Our own child, ended or not.
bool is_child(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, id_t(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace

struct Nursery::Impl : std::enable_shared_from_this<Nursery::Impl> {
  Impl(asio::io_context& io, Reaper& reaper, uid_t peer_uid, std::function<void()> connected)
      : io(io), reaper(reaper), peer_uid(peer_uid), connected(std::move(connected)), listener(io) {}

  asio::io_context& io;
  Reaper& reaper;
  uid_t peer_uid;
  std::function<void()> connected;
  Descriptor listener;
  std::shared_ptr<Descriptor> peer;
  bool asking = false;  // one fork at a time
  std::optional<std::string> answer;
  Event changed;

  void drop() {
    if (!peer) return;
    boost::system::error_code ignored;  // closing cannot fail in a way that matters
    peer->close(ignored);
    peer.reset();
    changed.notify();
  }

  // The process is known by a descriptor only here: memory in files has no place for one.
  static net::Task<void> end(std::shared_ptr<Impl> self) {
    const std::shared_ptr<Descriptor> peer = self->peer;
    if (!peer) co_return;
    Fd process = peer_process(peer->native_handle());
    self->drop();
    // It ends when its socket does; one that a user has stopped does not.
    if (!process || ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0)
      co_return;
    const auto gone = std::make_shared<Descriptor>(self->io, process.release());
    asio::steady_timer deadline(self->io, kEndTime);
    deadline.async_wait([gone](boost::system::error_code ec) {
      boost::system::error_code ignored;
      if (!ec && gone->is_open()) gone->cancel(ignored);
    });
    auto [ec] = co_await gone->async_wait(Descriptor::wait_read, kUse);
    deadline.cancel();
    boost::system::error_code ignored;  // closing cannot fail in a way that matters
    gone->close(ignored);
    if (ec) log::warn("the nursery does not end", {{"error", ec.message()}});
    self->reaper.poll();
  }

  static net::Task<void> accept_loop(std::shared_ptr<Impl> self) {
    for (;;) {
      auto [ec] = co_await self->listener.async_wait(Descriptor::wait_read, kUse);
      if (ec) co_return;
      const int fd =
          ::accept4(self->listener.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) continue;
      Fd owned(fd);
      ucred who{};
      socklen_t size = sizeof who;
      if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 ||
          who.uid != self->peer_uid || self->peer)
        continue;
      self->peer = std::make_shared<Descriptor>(self->io, owned.release());
      asio::co_spawn(self->io, read_loop(self, self->peer), asio::detached);
      self->changed.notify();
      if (self->connected) self->connected();
    }
  }

  // Answers come only to questions; everything else ends the connection.
  static net::Task<void> read_loop(std::shared_ptr<Impl> self, std::shared_ptr<Descriptor> from) {
    for (;;) {
      auto [ec] = co_await from->async_wait(Descriptor::wait_read, kUse);
      if (ec || self->peer != from) co_return;
      char text[512];
      // Without room for control data, descriptors that somebody sends are thrown away.
      const ssize_t n = ::recv(from->native_handle(), text, sizeof text, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (n <= 0 || !self->asking || self->answer) {
        self->drop();
        co_return;
      }
      self->answer = std::string(text, std::size_t(n));
      self->changed.notify();
    }
  }

  static net::Task<Result<pid_t>> ask(std::shared_ptr<Impl> self, Fd socket) {
    const std::shared_ptr<Descriptor> peer = self->peer;
    if (!peer) co_return make_error(Errc::unavailable, "there is no nursery");
    if (auto sent = send_fork(peer->native_handle(), socket.get()); !sent.ok()) {
      self->drop();
      co_return std::move(sent).error();
    }
    socket.reset();
    auto waiting =
        until(self->changed, [&] { return self->answer || self->peer != peer; }, kAnswerTime);
    const bool came = co_await std::move(waiting);
    if (!came) self->drop();
    if (!self->answer) co_return make_error(Errc::unavailable, "the nursery did not answer");
    ATOLL_CO_TRY_ASSIGN(const pid_t pid, read_answer(*self->answer));
    // Whoever controls the nursery could name any process; only a child of ours is a kernel.
    const auto give_up = Clock::now() + kAdoptionTime;
    while (!is_child(pid)) {
      if (Clock::now() >= give_up)
        co_return make_error(Errc::unavailable, "the nursery's kernel is not there");
      auto pause = self->changed.wait_until(Clock::now() + kAdoptionLook);
      co_await std::move(pause);
    }
    if (self->reaper.watches(pid))
      co_return make_error(Errc::unavailable, "the nursery named another process");
    co_return pid;
  }
};

Nursery::Nursery(asio::io_context& io, Reaper& reaper, uid_t peer_uid,
                 std::function<void()> connected)
    : impl_(std::make_shared<Impl>(io, reaper, peer_uid, std::move(connected))) {}

Nursery::~Nursery() {
  boost::system::error_code ignored;  // closing cannot fail in a way that matters
  impl_->listener.close(ignored);
  impl_->connected = nullptr;
  impl_->drop();
}

Result<void> Nursery::listen(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof address.sun_path)
    return make_error(Errc::invalid_argument, "not a name of a socket: " + name);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("socket");
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(fd.get(), 4) != 0)
    return errno_error("listen for the nursery");
  impl_->listener.assign(fd.release());
  asio::co_spawn(impl_->io, Impl::accept_loop(impl_), asio::detached);
  return {};
}

bool Nursery::is_connected() const { return impl_->peer != nullptr; }

net::Task<void> Nursery::end() {
  const std::shared_ptr<Impl> self = impl_;
  while (self->asking) {
    auto turn = self->changed.wait();
    co_await std::move(turn);
  }
  auto ending = Impl::end(self);
  co_await std::move(ending);
}

net::Task<Result<pid_t>> Nursery::fork(Fd socket) {
  const std::shared_ptr<Impl> self = impl_;
  while (self->asking) {
    auto turn = self->changed.wait();
    co_await std::move(turn);
  }
  self->asking = true;
  auto asking = Impl::ask(self, std::move(socket));
  auto pid = co_await std::move(asking);
  self->asking = false;
  self->answer.reset();
  self->changed.notify();
  co_return pid;
}

}  // namespace atl::agent::interpreter
