// Connect protocol, server side: unary, server-streaming and client-streaming calls over HTTP/1.1,
// with the JSON and the binary protobuf codec from one schema (wire/sandbox-agent.md §3). A Router
// maps procedure paths to handlers of message types.
#pragma once

#include <google/protobuf/message.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "net/http.h"
#include "rpc/codec.h"

namespace atl::rpc {

struct CallContext {
  net::Exchange& exchange;
  Codec codec = Codec::json;
  std::optional<std::chrono::milliseconds> timeout;  // Connect-Timeout-Ms; absent or 0 = none
  std::optional<std::chrono::steady_clock::time_point> deadline;  // the same as a point in time
};

// Bodies beyond these are refused with resource_exhausted.
struct Limits {
  std::size_t unary_body = 64 << 20;
  std::size_t envelope = 16 << 20;
};

// Where a server-streaming handler puts its messages. Each send is flushed at once. A handler needs
// no loop that looks for clients that left or for the deadline: the router cancels it, and it
// unwinds at its current suspension point.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  virtual net::Task<Result<void>> send(const google::protobuf::Message& message) = 0;
};

// Where a client-streaming handler gets its messages: false = the client finished.
class MessageSource {
 public:
  virtual ~MessageSource() = default;
  virtual net::Task<Result<bool>> next(google::protobuf::Message& into) = 0;
};

// Connect-Timeout-Ms: 1 to 10 digits; 0 = none. Errors: invalid_argument.
Result<std::optional<std::chrono::milliseconds>> parse_timeout(const net::Headers& headers);
// Keepalive-Ping-Interval in seconds; 90 s when missing, unreadable or not positive.
std::chrono::seconds keepalive_interval(const net::Headers& headers);
// An error in the form that the request's content type asks for: a unary body with its HTTP status,
// or 200 with an end-of-stream envelope for streaming content types. For answers given before a
// call is routed.
net::Task<void> send_error(net::Exchange& exchange, const Error& error);
// Runs a part of a unary call that may wait long (its request was read whole): canceled if the
// client leaves meanwhile, deadline_exceeded past the call's deadline.
net::Task<Result<void>> while_connected(CallContext& call, net::Task<Result<void>> part);

class Router {
 public:
  explicit Router(Limits limits = {}) : limits_(limits) {}

  using Unary = std::function<net::Task<Result<void>>(
      CallContext&, const google::protobuf::Message& in, google::protobuf::Message& out)>;
  using ServerStream = std::function<net::Task<Result<void>>(
      CallContext&, const google::protobuf::Message& in, MessageSink& sink)>;
  using ClientStream = std::function<net::Task<Result<void>>(CallContext&, MessageSource& source,
                                                             google::protobuf::Message& out)>;

  // Typed registration; `fn` is e.g. Task<Result<StatResponse>>(CallContext&, const StatRequest&).
  template <class In, class Out, class Fn>
  void unary(std::string path, Fn fn) {
    add_unary(std::move(path), std::make_unique<In>(), std::make_unique<Out>(),
              [fn](CallContext& call, const google::protobuf::Message& in,
                   google::protobuf::Message& out) -> net::Task<Result<void>> {
                return call_unary<In, Out, Fn>(fn, call, static_cast<const In&>(in),
                                               static_cast<Out&>(out));
              });
  }
  template <class In, class Fn>
  void server_stream(std::string path, Fn fn) {
    add_server_stream(
        std::move(path), std::make_unique<In>(),
        [fn](CallContext& call, const google::protobuf::Message& in, MessageSink& sink) {
          return fn(call, static_cast<const In&>(in), sink);
        });
  }
  template <class In, class Out, class Fn>
  void client_stream(std::string path, Fn fn) {
    add_client_stream(
        std::move(path), std::make_unique<In>(), std::make_unique<Out>(),
        [fn](CallContext& call, MessageSource& source, google::protobuf::Message& out) {
          return fn(call, source, static_cast<Out&>(out));
        });
  }

  // Answers the exchange if its path is a procedure (or looks like one of a known service); false =
  // not ours, nothing sent.
  net::Task<bool> handle(net::Exchange& exchange);

 private:
  template <class In, class Out, class Fn>
  static net::Task<Result<void>> call_unary(Fn fn, CallContext& call, const In& in, Out& out) {
    Result<Out> result = co_await fn(call, in);
    if (!result.ok()) co_return std::move(result).error();
    out = std::move(result).value();
    co_return Result<void>();
  }

  struct Method;
  net::Task<void> run_unary(CallContext& call, const Method& method);
  net::Task<void> run_server_stream(CallContext& call, const Method& method);
  net::Task<void> run_client_stream(CallContext& call, const Method& method);
  void add_unary(std::string path, std::unique_ptr<google::protobuf::Message> in,
                 std::unique_ptr<google::protobuf::Message> out, Unary fn);
  void add_server_stream(std::string path, std::unique_ptr<google::protobuf::Message> in,
                         ServerStream fn);
  void add_client_stream(std::string path, std::unique_ptr<google::protobuf::Message> in,
                         std::unique_ptr<google::protobuf::Message> out, ClientStream fn);

  Limits limits_;
  std::map<std::string, std::shared_ptr<Method>, std::less<>> methods_;
};

}  // namespace atl::rpc
