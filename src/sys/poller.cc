#include "sys/poller.h"

#include <sys/epoll.h>

#include <cerrno>

namespace atl::sys {

Result<Poller> Poller::create() {
  UniqueFd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd) return errno_error("epoll_create1");
  return Poller(std::move(fd));
}

Result<void> Poller::add(const UniqueFd& fd, std::uint64_t token) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = token;
  if (::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return errno_error("epoll_ctl");
  return {};
}

void Poller::remove(const UniqueFd& fd) {
  (void)::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);  // not in the set: as wished
}

Result<std::vector<std::uint64_t>> Poller::wait(std::optional<std::chrono::milliseconds> at_most) {
  epoll_event events[64];
  const int timeout = at_most ? int(std::max<long long>(0, at_most->count())) : -1;
  const int n = ::epoll_wait(fd_.get(), events, 64, timeout);
  std::vector<std::uint64_t> tokens;
  if (n < 0 && errno == EINTR) return tokens;
  if (n < 0) return errno_error("epoll_wait");
  for (int i = 0; i < n; ++i) tokens.push_back(events[i].data.u64);
  return tokens;
}

}  // namespace atl::sys
