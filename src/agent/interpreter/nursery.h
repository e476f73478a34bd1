// Nursery: the agent's side of the pristine Python that forks kernels (kernels/protocol.md).
//
// Theory of operation. The agent listens on an abstract SEQPACKET socket from boot on. The warden
// makes the zygote fork a process into the sandbox; it connects as root, then gives that up. One
// peer is kept at a time. A fork is one datagram with one descriptor, answered by one datagram, in
// order. A peer that breaks the rules or does not answer is dropped: kernels are then started cold.
// After `end` the next one is accepted, as after any other end of a peer.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/file_io.h"
#include "agent/interpreter/event.h"
#include "agent/reaper.h"

namespace atl::agent::interpreter {

class Nursery {
 public:
  // `connected` is called when a peer was accepted. The reaper outlives the nursery.
  Nursery(net::asio::io_context& io, Reaper& reaper, uid_t peer_uid,
          std::function<void()> connected);
  ~Nursery();

  // Listens on the abstract name.
  Result<void> listen(const std::string& name);
  bool is_connected() const;
  // A child of the agent whose descriptor 3 is `socket`. Errors: unavailable; the caller then
  // starts a kernel cold.
  net::Task<Result<pid_t>> fork(Fd socket);
  // Ends the peer, after the fork under way, and waits until its process is gone.
  net::Task<void> end();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace atl::agent::interpreter
