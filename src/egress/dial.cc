#include "egress/dial.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

namespace atl::egress {
namespace {

namespace asio = net::asio;
constexpr auto kUse = asio::as_tuple(asio::use_awaitable);

class PutBack final : public net::Stream {
 public:
  PutBack(std::unique_ptr<net::Stream> inner, std::string bytes)
      : inner_(std::move(inner)), bytes_(std::move(bytes)) {}

  net::Task<Result<std::size_t>> read_some(std::span<char> into) override {
    if (used_ < bytes_.size() && !into.empty()) {
      const std::size_t n = bytes_.copy(into.data(), into.size(), used_);
      used_ += n;
      if (used_ == bytes_.size()) std::string().swap(bytes_), used_ = 0;
      co_return n;
    }
    auto reading = inner_->read_some(into);
    co_return co_await std::move(reading);
  }
  net::Task<Result<void>> write_pieces(std::span<const std::string_view> pieces) override {
    return inner_->write_pieces(pieces);
  }
  net::Task<void> wait_peer_closed() override { return inner_->wait_peer_closed(); }
  void set_read_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    inner_->set_read_timeout(timeout);
  }
  void set_write_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    inner_->set_write_timeout(timeout);
  }
  void shutdown_write() override { inner_->shutdown_write(); }
  void close() override { inner_->close(); }
  void reset() override { inner_->reset(); }
  asio::any_io_executor executor() override { return inner_->executor(); }
  // Whoever used the descriptor itself would miss the bytes.
  int native_handle() override { return bytes_.empty() ? inner_->native_handle() : -1; }
  int release() override { return bytes_.empty() ? inner_->release() : -1; }

 private:
  std::unique_ptr<net::Stream> inner_;
  std::string bytes_;
  std::size_t used_ = 0;
};

}  // namespace

net::Task<Result<std::unique_ptr<net::Stream>>> dial(asio::ip::tcp::endpoint to,
                                                     std::chrono::milliseconds limit) {
  auto executor = co_await asio::this_coro::executor;
  asio::ip::tcp::socket socket(executor);
  asio::steady_timer timer(executor, limit);
  bool late = false;
  auto done = std::make_shared<bool>(false);
  timer.async_wait([&socket, &late, done](const boost::system::error_code& ec) {
    if (ec || *done) return;
    late = true;
    boost::system::error_code ignored;
    socket.close(ignored);
  });
  auto [ec] = co_await socket.async_connect(to, kUse);
  *done = true;
  if (late) co_return make_error(Errc::deadline_exceeded, "connect: no answer in time");
  if (ec) co_return net::to_error(ec, "connect");
  co_return net::make_stream(net::Socket(std::move(socket)));
}

std::unique_ptr<net::Stream> put_back(std::unique_ptr<net::Stream> stream, std::string bytes) {
  if (bytes.empty()) return stream;
  return std::make_unique<PutBack>(std::move(stream), std::move(bytes));
}

}  // namespace atl::egress
