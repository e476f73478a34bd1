// HTTP/1.1 messages and bodies over a Stream, both sides.
//
// Parsing is Beast's; framing, limits and life cycle are ours. Nothing buffers a whole body unless
// asked (`read_all`, with a limit). Header names compare without case.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/stream.h"
#include "net/task.h"

namespace atl::net {

class Headers {
 public:
  struct Field {
    std::string name;
    std::string value;
  };

  Headers() = default;
  Headers(std::initializer_list<Field> fields) : fields_(fields) {}

  void add(std::string name, std::string value) {
    fields_.push_back({std::move(name), std::move(value)});
  }
  void set(std::string_view name, std::string value);  // replaces all of that name
  void erase(std::string_view name);
  // First value of that name; empty if there is none (use `has` to tell).
  std::string_view get(std::string_view name) const;
  std::optional<std::string_view> find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name).has_value(); }
  // True if a comma-separated header lists `token` (without case): "Connection: keep-alive,
  // Upgrade".
  bool lists(std::string_view name, std::string_view token) const;

  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }
  std::size_t size() const { return fields_.size(); }

 private:
  std::vector<Field> fields_;
};

bool iequals(std::string_view a, std::string_view b);

struct RequestHead {
  std::string method = "GET";
  std::string target = "/";  // as on the wire: path and query
  int version = 11;
  Headers headers;

  std::string_view path() const;   // before '?', still encoded
  std::string_view query() const;  // after '?', may be empty
  // Decoded value of a query parameter ('+' is a space); nullopt if absent. The first one wins.
  std::optional<std::string> query_param(std::string_view name) const;
};

struct ResponseHead {
  int status = 200;
  std::string reason;
  int version = 11;
  Headers headers;
};

std::string_view reason_phrase(int status);

struct HttpLimits {
  std::size_t header_bytes = 64 * 1024;
  std::chrono::milliseconds header_time{30'000};  // from the first byte of a head to its end
  std::chrono::milliseconds idle_time{640'000};   // between requests of one connection
  std::chrono::milliseconds write_time{120'000};  // a client that takes no bytes
};

class Http1Connection;  // the shared state of one connection; see http.cc

// The body of a message that is being received.
class BodyReader {
 public:
  virtual ~BodyReader() = default;
  // 0 = end of body. Errors: invalid_argument (bad framing), unavailable (peer went away),
  // deadline_exceeded.
  virtual Task<Result<std::size_t>> read_some(std::span<char> into) = 0;
  // Everything, or resource_exhausted when it is longer than `limit`.
  Task<Result<std::string>> read_all(std::size_t limit);
  virtual std::optional<std::uint64_t> content_length()
      const = 0;  // nullopt: chunked or until close
  virtual bool at_end() const = 0;
};

// The answer of one exchange. Either `send`, or `start`, any number of `write`, then `finish`.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // Whole answer at once. Adds Content-Length; 204 and 304 have no body.
  virtual Task<Result<void>> send(int status, Headers headers, std::string body) = 0;
  // Head now, body follows. With a length the body is raw, without one it is chunked (HTTP/1.0:
  // until close).
  virtual Task<Result<void>> start(int status, Headers headers,
                                   std::optional<std::uint64_t> length) = 0;
  // Sends at once (no buffering): one call, one chunk.
  virtual Task<Result<void>> write(std::string_view bytes) = 0;
  virtual Task<Result<void>> finish() = 0;
  virtual bool started() const = 0;
  virtual bool finished() const = 0;
  // 1xx, before anything else; used for "Expect: 100-continue" (sent by itself on the first body
  // read). Breaks the connection with RST: the client must see a transport failure, not an end.
  virtual void abort() = 0;
};

// One request with its answer, as a handler sees it. Valid until the handler returns.
struct Exchange {
  RequestHead request;
  BodyReader& body;
  ResponseWriter& response;
  Stream& stream;             // for wait_peer_closed(), and for tunnels after `start(101)`
  std::string_view listener;  // name of the listener it came in by
  std::string peer;           // address for logs; empty for Unix sockets

  // Takes the connection over (WebSocket, CONNECT): bytes already read from the client come first.
  // After this the handler owns the conversation and the connection closes when it returns.
  virtual std::string take_over() = 0;
  virtual ~Exchange() = default;
  Exchange(BodyReader& b, ResponseWriter& r, Stream& s) : body(b), response(r), stream(s) {}
};

// ---- client side: one request at a time over a stream ----
class HttpClient {
 public:
  explicit HttpClient(std::unique_ptr<Stream> stream, HttpLimits limits = {});
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;

  // `length`: nullopt = chunked; 0 = no body. Host and framing headers are added if missing.
  Task<Result<void>> write_head(const RequestHead& head, std::optional<std::uint64_t> length);
  // Head and whole body in one piece: one packet instead of two for the common small request.
  Task<Result<void>> write_request(const RequestHead& head, std::string_view body);
  Task<Result<void>> write_body(std::string_view bytes);
  Task<Result<void>> finish_body();
  // Final response head; 1xx other than 101 are skipped.
  Task<Result<ResponseHead>> read_head();
  BodyReader& body();
  // After a whole response: may the connection be used again?
  bool reusable() const;
  Stream& stream();
  // For a 101 answer: bytes that came after the head.
  std::string take_over();

  // The common case: a request with a small body, an answer of at most `limit` bytes.
  struct Answer {
    ResponseHead head;
    std::string body;
  };
  Task<Result<Answer>> request(RequestHead head, std::string body, std::size_t limit = 4 << 20);

 private:
  std::string begin(const RequestHead& head, std::optional<std::uint64_t> length);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace atl::net
