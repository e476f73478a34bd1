// HTTP heads and bodies, Connect framing and messages: raw bytes as a client could send them,
// through the HTTP reader into a router with every kind of call. Checks that each answered stream
// is framed well and says how it ended.
//
// The first byte of the input says how the bytes are cut into reads and, in its top bit, whether
// they are raw HTTP or only a body for a call chosen by the second byte.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <cstdlib>

#include "agent/filesystem.pb.h"
#include "agent/process.pb.h"
#include "net/http1.h"
#include "rpc/connect.h"
#include "rpc/envelope.h"
#include "rpc/error_body.h"

namespace atl {
namespace {

namespace asio = net::asio;
using rpc::CallContext;
using rpc::MessageSink;
using rpc::MessageSource;

void require(bool condition) {
  if (!condition) std::abort();
}

class BytesStream final : public net::Stream {
 public:
  BytesStream(asio::io_context& io, std::string_view bytes, std::size_t step)
      : never_(io), bytes_(bytes), step_(step) {
    never_.expires_at(std::chrono::steady_clock::time_point::max());
  }

  net::Task<Result<std::size_t>> read_some(std::span<char> into) override {
    const std::size_t n = std::min({into.size(), step_, bytes_.size()});
    bytes_.copy(into.data(), n);
    bytes_.remove_prefix(n);
    co_return n;
  }
  net::Task<Result<void>> write_pieces(std::span<const std::string_view>) override {
    co_return Result<void>();
  }
  net::Task<void> wait_peer_closed() override { co_await never_.async_wait(asio::use_awaitable); }
  void set_read_timeout(std::optional<std::chrono::milliseconds>) override {}
  void set_write_timeout(std::optional<std::chrono::milliseconds>) override {}
  void shutdown_write() override {}
  void close() override {}
  void reset() override {}
  asio::any_io_executor executor() override { return never_.get_executor(); }
  int native_handle() override { return -1; }

 private:
  asio::steady_timer never_;
  std::string_view bytes_;
  std::size_t step_;
};

class CheckingWriter final : public net::ResponseWriter {
 public:
  net::Task<Result<void>> send(int status, net::Headers headers, std::string body) override {
    require(!started_ && status >= 200 && status < 600);
    started_ = finished_ = true;
    body_ = std::move(body);
    check(headers.get("Content-Type"));
    co_return Result<void>();
  }
  net::Task<Result<void>> start(int status, net::Headers headers,
                                std::optional<std::uint64_t>) override {
    require(!started_ && status == 200);
    started_ = true;
    type_ = headers.get("Content-Type");
    co_return Result<void>();
  }
  net::Task<Result<void>> write(std::string_view bytes) override {
    require(started_ && !finished_);
    body_ += bytes;
    co_return Result<void>();
  }
  net::Task<Result<void>> finish() override {
    require(started_ && !finished_);
    finished_ = true;
    check(type_);
    co_return Result<void>();
  }
  bool started() const override { return started_; }
  bool finished() const override { return finished_; }
  void abort() override { started_ = finished_ = true; }

 private:
  // A stream is whole envelopes, and the last one alone is the end.
  void check(std::string_view type) {
    if (!type.starts_with("application/connect+")) return;
    rpc::EnvelopeParser parser(64 << 20);
    parser.feed(body_);
    bool ended = false;
    for (;;) {
      auto next = parser.next();
      require(next.ok());
      if (!next->has_value()) break;
      require(!ended);
      ended = (*next)->flags & rpc::kFlagEndStream;
      if (ended) {
        const auto outcome = rpc::parse_end_stream((*next)->payload);
        require(outcome.ok() || !outcome.error().message.starts_with("invalid end"));
      }
    }
    require(ended && !parser.partial());
  }

  bool started_ = false;
  bool finished_ = false;
  std::string type_;
  std::string body_;
};

struct FuzzExchange final : net::Exchange {
  using net::Exchange::Exchange;
  std::string take_over() override { return {}; }
};

template <class In, class Out>
net::Task<Result<Out>> empty_answer(CallContext&, const In&) {
  co_return Out();
}

net::Task<Result<void>> start(CallContext&, const process::StartRequest& in, MessageSink& sink) {
  process::StartResponse out;
  out.mutable_event()->mutable_data()->set_stdout(in.process().cmd());
  ATOLL_CO_TRY(co_await sink.send(out));
  if (in.has_tag()) co_return make_error(Errc::invalid_argument, in.tag());
  co_return Result<void>();
}

net::Task<Result<void>> stream_input(CallContext&, MessageSource& source,
                                     process::StreamInputResponse&) {
  process::StreamInputRequest in;
  for (;;) {
    ATOLL_CO_TRY_ASSIGN(const bool more, co_await source.next(in));
    if (!more) co_return Result<void>();
  }
}

const char* const kPaths[] = {"/process.Process/SendInput", "/filesystem.Filesystem/Stat",
                              "/process.Process/Start", "/process.Process/StreamInput"};
const char* const kTypes[] = {"application/json", "application/proto", "application/connect+json",
                              "application/connect+proto"};

rpc::Router make_router() {
  rpc::Router router(rpc::Limits{1 << 20, 1 << 16});
  router.unary<process::SendInputRequest, process::SendInputResponse>(
      kPaths[0], empty_answer<process::SendInputRequest, process::SendInputResponse>);
  router.unary<filesystem::StatRequest, filesystem::StatResponse>(
      kPaths[1], empty_answer<filesystem::StatRequest, filesystem::StatResponse>);
  router.server_stream<process::StartRequest>(kPaths[2], start);
  router.client_stream<process::StreamInputRequest, process::StreamInputResponse>(kPaths[3],
                                                                                  stream_input);
  return router;
}

net::Task<void> serve_raw(rpc::Router& router, BytesStream& stream) {
  net::Http1Buffer buffer;
  const net::HttpLimits limits;
  net::Http1Reader reader(stream, buffer, limits);
  for (int requests = 0; requests < 8; ++requests) {
    auto head = co_await reader.read_request();
    if (!head.ok() || !head->has_value()) co_return;
    CheckingWriter writer;
    FuzzExchange exchange(reader, writer, stream);
    exchange.request = **head;
    (void)exchange.request.query_param("path");
    if (!co_await router.handle(exchange)) co_return;
    require(writer.started());
    if (!writer.finished() || !reader.at_end()) co_return;
  }
}

class OnlyBody final : public net::BodyReader {
 public:
  explicit OnlyBody(BytesStream& stream) : stream_(stream) {}
  net::Task<Result<std::size_t>> read_some(std::span<char> into) override {
    auto n = co_await stream_.read_some(into);
    end_ = n.ok() && *n == 0;
    co_return n;
  }
  std::optional<std::uint64_t> content_length() const override { return std::nullopt; }
  bool at_end() const override { return end_; }

 private:
  BytesStream& stream_;
  bool end_ = false;
};

net::Task<void> serve_body(rpc::Router& router, BytesStream& stream, std::uint8_t choice) {
  OnlyBody body(stream);
  CheckingWriter writer;
  FuzzExchange exchange(body, writer, stream);
  exchange.request.method = "POST";
  exchange.request.target = kPaths[choice & 3];
  exchange.request.headers.add("Content-Type", kTypes[choice >> 2 & 3]);
  require(co_await router.handle(exchange));
  require(writer.finished());
}

}  // namespace
}  // namespace atl

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static atl::rpc::Router router = atl::make_router();
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  boost::asio::io_context io(1);
  atl::BytesStream stream(io, bytes, 1 + (data[0] & 0x7f) * std::size_t(13));
  bool done = false;
  const auto finished = [&done](std::exception_ptr failure) {
    if (failure) std::rethrow_exception(failure);
    done = true;
  };
  if (data[0] & 0x80) {
    boost::asio::co_spawn(io, atl::serve_body(router, stream, data[1]), finished);
  } else {
    boost::asio::co_spawn(io, atl::serve_raw(router, stream), finished);
  }
  io.run();
  atl::require(done);
  return 0;
}
