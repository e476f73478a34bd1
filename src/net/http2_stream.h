// Inside of src/net: one request of an HTTP/2 connection, as its handler sees it.
//
// Everything happens on the connection's strand. Received bytes wait in `inbox_`, which the
// stream's window bounds: the peer gets credit back only for what the handler has read. Bytes to be
// sent stay where the handler has them: write() returns when the session has taken them all, and
// the session takes them as the peer's windows and the socket allow.
#pragma once

#include <nghttp2/nghttp2.h>

#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/http.h"

namespace atl::net {

// What a stream needs of its session.
class Http2Link {
 public:
  virtual nghttp2_session* session() = 0;
  virtual void wake_writer() = 0;  // something may have to be sent

 protected:
  ~Http2Link() = default;
};

// Wakes the one coroutine that waits.
class Event {
 public:
  explicit Event(const asio::any_io_executor& executor) : timer_(executor) {}
  // false: the time passed.
  Task<bool> wait(std::optional<std::chrono::milliseconds> limit);
  void notify() { timer_.cancel(); }

 private:
  asio::steady_timer timer_;
};

class Http2Stream final : public BodyReader, public ResponseWriter {
 public:
  Http2Stream(Http2Link& link, asio::any_io_executor executor, std::int32_t id,
              const HttpLimits& limits);
  ~Http2Stream() override;

  // ---- the session's side ----
  // A header field; past the limit fields are counted only.
  void add_field(std::string_view name, std::string_view value);
  bool over_limit(std::size_t factor) const;
  // The head is complete: what is wrong with it, or nothing.
  struct Refusal {
    int status;
    std::string message;
  };
  std::optional<Refusal> finish_head();
  RequestHead& head() { return head_; }
  Stream& facade();

  void on_data(std::string_view bytes);
  void on_end();  // the client sent all
  // The stream is over; `broken`: before its time, or with the whole connection.
  void on_closed(bool broken);
  // The handler has returned: what the client still sends is thrown away, within limits.
  Task<void> settle();
  bool closed() const { return closed_; }
  bool aborted() const { return aborted_; }
  bool ended() const { return ended_; }
  std::int32_t id() const { return id_; }
  ssize_t provide(std::span<std::uint8_t> into, std::uint32_t& flags);

  // ---- BodyReader ----
  Task<Result<std::size_t>> read_some(std::span<char> into) override;
  std::optional<std::uint64_t> content_length() const override { return length_; }
  bool at_end() const override { return ended_ && inbox_size() == 0; }

  // ---- ResponseWriter ----
  Task<Result<void>> send(int status, Headers headers, std::string body) override;
  Task<Result<void>> start(int status, Headers headers,
                           std::optional<std::uint64_t> length) override;
  Task<Result<void>> write(std::string_view bytes) override;
  Task<Result<void>> finish() override;
  bool started() const override { return started_; }
  bool finished() const override { return finished_; }
  void abort() override;

 private:
  class Facade;
  enum class Body { none, follows };

  std::size_t inbox_size() const { return inbox_.size() - inbox_begin_; }
  Result<void> submit_head(int status, const Headers& headers, std::optional<std::uint64_t> length,
                           Body body);
  void resume();
  void stop_upload();
  Task<Result<void>> drain_outbox();  // waits until everything was taken
  Error gone() const;

  Http2Link& link_;
  asio::any_io_executor executor_;
  const std::int32_t id_;
  const HttpLimits& limits_;
  std::unique_ptr<Facade> facade_;

  RequestHead head_;
  std::string authority_;
  std::string cookie_;
  std::size_t head_bytes_ = 0;
  std::optional<std::uint64_t> length_;
  bool expect_continue_ = false;

  std::vector<char> inbox_;
  std::size_t inbox_begin_ = 0;
  Event readable_;
  std::optional<std::chrono::milliseconds> read_timeout_;

  std::string_view outbox_;
  Event writable_;
  std::optional<std::chrono::milliseconds> write_timeout_;
  std::optional<std::uint64_t> left_;
  std::uint64_t taken_ = 0;  // bytes that the session took: progress
  bool deferred_ = false;    // the session waits for resume()
  bool eof_ = false;
  bool eof_sent_ = false;
  bool head_only_ = false;
  bool started_ = false;
  bool finished_ = false;

  asio::steady_timer closing_;  // never expires; cancelled when the stream breaks
  std::size_t discarded_ = 0;
  bool ended_ = false;
  bool closed_ = false;
  bool broken_ = false;
  bool aborted_ = false;
  bool discarding_ = false;
};

}  // namespace atl::net
