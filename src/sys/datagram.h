// Unix sockets: datagrams with descriptors over a SEQPACKET pair, a listening socket, and the
// loopback interface.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

// Both ends close-on-exec and blocking.
Result<std::pair<UniqueFd, UniqueFd>> seqpacket_pair();

enum class Wait { yes, no };

// Sends one datagram. With Wait::no a full socket is an Error with sys_errno EAGAIN. Never raises
// SIGPIPE.
Result<void> send_datagram(const UniqueFd& socket, std::span<const std::byte> bytes,
                           std::span<const int> fds, Wait wait);

struct Datagram {
  std::vector<std::byte> bytes;  // empty = the peer has closed
  std::vector<UniqueFd> fds;
};
// Receives one datagram of at most `limit` bytes and `max_fds` descriptors; one that is larger is
// an error.
Result<Datagram> receive_datagram(const UniqueFd& socket, std::size_t limit, std::size_t max_fds,
                                  Wait wait);

// Binds and listens at an absolute path. The socket's inode gets `mode` exactly.
Result<UniqueFd> listen_unix(const std::string& path, unsigned mode, int backlog);

// Brings `lo` of the caller's network namespace up; the kernel then gives it 127.0.0.1 and ::1.
Result<void> loopback_up();

}  // namespace atl::sys
