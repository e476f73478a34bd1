// An HTTP/2 connection from its preface to its end: raw frames, or frames built from the input so
// that requests get far, into handlers that read, stream, abort, watch and forget to answer. Checks
// that the connection always ends with its input, that no handler outlives it, and that what the
// server sends is whole frames with nothing after RST_STREAM or END_STREAM of a stream.
//
// The first byte of the input says how the bytes are cut into reads and, in its top bit, whether
// they are raw or a script.
#include <nghttp2/nghttp2.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cstdint>
#include <cstdlib>
#include <set>

#include "base/log.h"
#include "net/http2.h"

namespace atl {
namespace {

namespace asio = net::asio;

void require(bool condition) {
  if (!condition) std::abort();
}

class BytesStream final : public net::Stream {
 public:
  BytesStream(asio::any_io_executor executor, std::string_view bytes, std::size_t step)
      : executor_(std::move(executor)), bytes_(bytes), step_(step) {}

  net::Task<Result<std::size_t>> read_some(std::span<char> into) override {
    // Handlers and the writer get their turn between reads.
    for (int i = 0; i < 3; ++i) co_await asio::post(executor_, asio::use_awaitable);
    if (closed_) co_return make_error(Errc::canceled, "closed");
    const std::size_t n = std::min({into.size(), step_, bytes_.size()});
    bytes_.copy(into.data(), n);
    bytes_.remove_prefix(n);
    co_return n;
  }
  net::Task<Result<void>> write_pieces(std::span<const std::string_view> pieces) override {
    co_await asio::post(executor_, asio::use_awaitable);
    if (closed_) co_return make_error(Errc::canceled, "closed");
    for (std::string_view piece : pieces) written += piece;
    co_return Result<void>();
  }
  net::Task<void> wait_peer_closed() override { co_return; }
  void set_read_timeout(std::optional<std::chrono::milliseconds>) override {}
  void set_write_timeout(std::optional<std::chrono::milliseconds>) override {}
  void shutdown_write() override {}
  void close() override { closed_ = true; }
  void reset() override { closed_ = true; }
  asio::any_io_executor executor() override { return executor_; }
  int native_handle() override { return -1; }
  int release() override { return -1; }

  std::string written;

 private:
  asio::any_io_executor executor_;
  std::string_view bytes_;
  std::size_t step_;
  bool closed_ = false;
};

int running = 0;

struct Running {
  Running() { ++running; }
  ~Running() { --running; }
};

net::Task<void> handle(net::Exchange& x) {
  const Running counted;
  require(x.request.version == 20);
  std::vector<char> buffer(1000);
  const std::string_view path = x.request.path();
  if (path == "/") {
    auto body = co_await x.body.read_all(10'000);
    (void)co_await x.response.send(body.ok() ? 200 : 400, {{"X-Y", "z"}}, body.ok() ? *body : "");
  } else if (path == "/echo") {
    (void)co_await x.response.start(200, {}, std::nullopt);
    for (;;) {
      auto n = co_await x.body.read_some(buffer);
      if (!n.ok() || *n == 0) break;
      require(*n <= buffer.size());
      if (!(co_await x.response.write(std::string_view(buffer.data(), *n))).ok()) break;
    }
    (void)co_await x.response.finish();
  } else if (path == "/much") {
    (void)co_await x.response.send(200, {}, std::string(200'000, 'm'));
  } else if (path == "/abort") {
    (void)co_await x.response.start(200, {}, 10);
    (void)co_await x.response.write("123");
    x.response.abort();
    require(!(co_await x.response.write("4")).ok());
  } else if (path == "/watch") {
    (void)co_await x.response.start(200, {}, std::nullopt);
    co_await x.stream.wait_peer_closed();
  } else if (path == "/throw") {
    throw std::runtime_error("thrown");
  }
  // Others are not answered.
}

std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t id, std::string_view body) {
  std::string out;
  for (int shift : {16, 8, 0}) out += char(body.size() >> shift);
  out += char(type);
  out += char(flags);
  for (int shift : {24, 16, 8, 0}) out += char(id >> shift);
  out += body;
  return out;
}

std::string literal(std::string_view name, std::string_view value) {
  std::string out(1, '\0');
  out += char(name.size());
  out += name;
  out += char(value.size());
  out += value;
  return out;
}

// Bytes of a script: an operation, a stream, an argument.
std::string from_script(std::string_view script) {
  static const char* const kPaths[] = {"/",      "/echo",  "/much", "/abort",
                                       "/watch", "/throw", "/none", "/echo"};
  std::string out = frame(NGHTTP2_SETTINGS, 0, 0, "");
  std::uint32_t next = 1;
  while (script.size() >= 3 && out.size() < 30'000) {
    const auto op = std::uint8_t(script[0]);
    const auto argument = std::uint8_t(script[2]);
    const std::uint32_t id = (std::uint8_t(script[1]) % (next + 2)) | 1;
    const std::uint8_t end = (op & 0x80) != 0 ? NGHTTP2_FLAG_END_STREAM : 0;
    script.remove_prefix(3);
    const std::string_view rest = script.substr(0, argument % 64);
    switch (op % 10) {
      case 0:
      case 1: {
        std::string head = literal(":method", (argument & 8) != 0 ? "GET" : "POST");
        head += literal(":scheme", "https") + literal(":authority", "h");
        head += literal(":path", kPaths[argument % 8]);
        if ((argument & 0x80) != 0) head += literal("content-length", "5");
        if ((argument & 0x40) != 0) head += literal("expect", "100-continue");
        if ((argument & 0x20) != 0) head += rest;
        out += frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | end, next, head);
        next += 2;
        break;
      }
      case 2:
        out += frame(NGHTTP2_DATA, end, id, std::string(argument * 100, 'd'));
        break;
      case 3:
        out += frame(NGHTTP2_RST_STREAM, 0, id, std::string("\0\0\0\x08", 4));
        break;
      case 4:
        out += frame(NGHTTP2_WINDOW_UPDATE, 0, (argument & 1) != 0 ? id : 0,
                     std::string("\0\x01", 2) + char(argument) + '\x01');
        break;
      case 5:
        out += frame(NGHTTP2_PING, argument & 1, 0, "12345678");
        break;
      case 6:
        out += frame(NGHTTP2_SETTINGS, 0, 0, rest.substr(0, rest.size() / 6 * 6));
        break;
      case 7:
        out += frame(NGHTTP2_HEADERS, argument & 0x0f, id, rest);  // trailers and nonsense
        break;
      case 8:
        out += frame(NGHTTP2_GOAWAY, 0, 0, std::string(8, '\0'));
        break;
      default:
        out += frame(argument & 0x0f, op, id, rest);
        break;
    }
  }
  return out;
}

// Whole frames (but for a last one that was cut off), and silence on streams that are over.
void check(std::string_view out) {
  std::set<std::uint32_t> over;
  const auto byte = [&out](std::size_t i) { return std::uint32_t(std::uint8_t(out[i])); };
  while (out.size() >= 9) {
    const std::size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
    const std::uint8_t type = std::uint8_t(out[3]);
    const std::uint8_t flags = std::uint8_t(out[4]);
    const std::uint32_t id = byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
    require(size <= 16'384 && type <= 0x10);
    require(out.size() >= 9 + size);
    if (type == NGHTTP2_DATA || type == NGHTTP2_HEADERS) {
      require(id != 0 && !over.contains(id));
      if ((flags & NGHTTP2_FLAG_END_STREAM) != 0) over.insert(id);
    }
    if (type == NGHTTP2_RST_STREAM) over.insert(id);
    out.remove_prefix(9 + size);
  }
  require(out.empty());
}

}  // namespace
}  // namespace atl

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl;
  if (size < 1) return 0;
  static const bool quiet = [] {
    log::configure(static_cast<log::Level>(99), log::Format::text);
    return true;
  }();
  (void)quiet;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string bytes = NGHTTP2_CLIENT_MAGIC;
  bytes += (data[0] & 0x80) != 0 ? from_script(input) : std::string(input);
  asio::io_context io(1);
  const asio::any_io_executor strand = asio::make_strand(io);
  auto connection = std::make_shared<net::ServerConnection>();
  connection->executor = strand;
  auto owned =
      std::make_unique<BytesStream>(strand, bytes, 13 + (data[0] & 0x7f) * std::size_t(97));
  BytesStream& stream = *owned;
  connection->stream = std::move(owned);
  net::ServerOptions options;
  options.max_streams = 20;
  const net::Handler handler = handle;
  bool done = false;
  asio::co_spawn(strand, net::serve_http2(connection, options, handler),
                 [&done](std::exception_ptr failure) {
                   if (failure) std::rethrow_exception(failure);
                   done = true;
                 });
  io.run_for(std::chrono::seconds(20));
  require(done && running == 0);
  check(stream.written);
  return 0;
}
