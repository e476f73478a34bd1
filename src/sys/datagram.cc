#include "sys/datagram.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace atl::sys {
namespace {

constexpr std::size_t kMaxFds = 16;

}  // namespace

Result<std::pair<UniqueFd, UniqueFd>> seqpacket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return errno_error("socketpair");
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Result<void> send_datagram(const UniqueFd& socket, std::span<const std::byte> bytes,
                           std::span<const int> fds, Wait wait) {
  ATOLL_CHECK(fds.size() <= kMaxFds);
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  for (;;) {
    const ssize_t n =
        ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | (wait == Wait::no ? MSG_DONTWAIT : 0));
    if (n == ssize_t(bytes.size())) return {};
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("send");
    return make_error(Errc::internal, "short datagram");
  }
}

Result<Datagram> receive_datagram(const UniqueFd& socket, std::size_t limit, std::size_t max_fds,
                                  Wait wait) {
  ATOLL_CHECK(max_fds <= kMaxFds);
  Datagram out;
  out.bytes.resize(limit);
  iovec part{out.bytes.data(), out.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = max_fds > 0 ? control : nullptr;
  message.msg_controllen = max_fds > 0 ? CMSG_SPACE(sizeof(int) * max_fds) : 0;
  ssize_t n = 0;
  do {
    n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | (wait == Wait::no ? MSG_DONTWAIT : 0));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno_error("receive");
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr;
       part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part_of) + i * sizeof(int), sizeof(int));
      out.fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return make_error(Errc::out_of_range, "datagram too large");
  out.bytes.resize(std::size_t(n));
  return out;
}

Result<UniqueFd> listen_unix(const std::string& path, unsigned mode, int backlog) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return make_error(Errc::invalid_argument, "socket path too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno_error("socket");
  // bind(2) creates the inode with 0777 less the mask: it never exists with wider rights than asked
  // for.
  const mode_t before = ::umask(mode_t(~mode & 0777));
  const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int saved = errno;
  ::umask(before);
  if (bound != 0) return errno_error("bind " + path, saved);
  if (::listen(fd.get(), backlog) != 0) return errno_error("listen " + path);
  return fd;
}

Result<void> loopback_up() {
  UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno_error("socket");
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", 3);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(fd.get(), SIOCSIFFLAGS, &request) != 0) return errno_error("set lo up");
  return {};
}

}  // namespace atl::sys
