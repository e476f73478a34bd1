// Stream: a connected byte stream of any kind (TCP, Unix; TLS on top later).
//
// Ownership: move-only through unique_ptr. One coroutine reads and one writes at a time, both on
// the executor the stream was made with. Every wait can have a deadline: past it the pending
// operation fails with deadline_exceeded.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "net/task.h"

namespace atl::net {

using Socket = asio::generic::stream_protocol::socket;

class Stream {
 public:
  virtual ~Stream() = default;

  // Reads at least one byte; 0 means that the peer finished sending.
  virtual Task<Result<std::size_t>> read_some(std::span<char> into) = 0;
  // Writes everything, gathering the pieces into as few system calls as the kernel takes.
  virtual Task<Result<void>> write_pieces(std::span<const std::string_view> pieces) = 0;
  Task<Result<void>> write_all(std::string_view bytes);
  // Completes when the peer has closed or reset the connection, or this side has closed it. Bytes
  // that arrive meanwhile are left unread.
  virtual Task<void> wait_peer_closed() = 0;

  // From now on reads fail when the peer stays silent for so long; nullopt = for ever.
  virtual void set_read_timeout(std::optional<std::chrono::milliseconds> timeout) = 0;
  // The same for writes: a peer that does not take bytes.
  virtual void set_write_timeout(std::optional<std::chrono::milliseconds> timeout) = 0;

  virtual void shutdown_write() = 0;
  // Closes in order. Pending operations fail.
  virtual void close() = 0;
  // Closes with RST, so that the peer sees a broken transport and not a clean end.
  virtual void reset() = 0;

  virtual asio::any_io_executor executor() = 0;
  // The descriptor, for splice and socket options; -1 if there is none to show.
  virtual int native_handle() = 0;
  // Gives the descriptor to the caller: the connection lives on, this stream is closed. For moving
  // a quiet connection to another executor. -1 if there is none to give. (A copy by dup(2) would
  // not do: epoll keeps watching the connection for the closed stream.)
  virtual int release() = 0;
};

std::unique_ptr<Stream> make_stream(Socket socket);

// Connects to a Unix socket by path (at most 107 bytes; /proc/self/fd/N works for descriptors).
Task<Result<std::unique_ptr<Stream>>> connect_unix(std::string path);
Task<Result<std::unique_ptr<Stream>>> connect_tcp(std::string ip, std::uint16_t port);

}  // namespace atl::net
