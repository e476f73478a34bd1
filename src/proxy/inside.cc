#include "proxy/inside.h"

#include <boost/asio/post.hpp>

#include "proxy/service.h"

namespace atl::proxy {
namespace {

namespace asio = net::asio;

// Counts as use of the sandbox, as a request through the proxy does; but no limit stops it.
class Use {
 public:
  explicit Use(std::shared_ptr<engine::Route> route)
      : route_(std::move(route)), counted_(route_->enter()) {}
  ~Use() {
    if (counted_) route_->leave();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  const std::shared_ptr<engine::Route> route_;
  const bool counted_;
};

// A connection into a sandbox that ends with the sandbox's route.
class RoutedStream : public net::Stream {
 public:
  RoutedStream(std::unique_ptr<net::Stream> stream, engine::Route::Inside inside,
               const std::shared_ptr<engine::Route>& route)
      : inside_(std::move(inside)), stream_(std::move(stream)), use_(route) {
    // The callback comes on any thread; the stream belongs to its executor.
    const auto end = [weak = std::weak_ptr<net::Stream>(stream_), executor = stream_->executor()] {
      asio::post(executor, [weak] {
        if (auto stream = weak.lock()) stream->close();
      });
    };
    subscription_ = engine::Route::subscribe(route, end, end);
  }

  net::Task<Result<std::size_t>> read_some(std::span<char> into) override {
    return stream_->read_some(into);
  }
  net::Task<Result<void>> write_pieces(std::span<const std::string_view> pieces) override {
    return stream_->write_pieces(pieces);
  }
  net::Task<void> wait_peer_closed() override { return stream_->wait_peer_closed(); }
  void set_read_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    stream_->set_read_timeout(timeout);
  }
  void set_write_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    stream_->set_write_timeout(timeout);
  }
  void shutdown_write() override { stream_->shutdown_write(); }
  void close() override {
    stream_->close();
    inside_ = {};
  }
  void reset() override {
    stream_->reset();
    inside_ = {};
  }
  asio::any_io_executor executor() override { return stream_->executor(); }
  int native_handle() override { return stream_->native_handle(); }
  // Its route would not be obeyed any more.
  int release() override { return -1; }

 private:
  engine::Route::Inside inside_;  // outlives the connection
  std::shared_ptr<net::Stream> stream_;
  Use use_;
  engine::Route::Subscription subscription_;
};

net::Task<Result<net::HttpClient>> connect_inside(engine::Engine& engine, SandboxId id,
                                                  std::uint16_t port) {
  const auto route = engine.route(id);
  if (!route || route->dead())
    co_return make_error(Errc::not_found, "the sandbox " + id.str() + " does not run");
  auto inside = engine::Route::go_inside(route);
  if (!inside)
    co_return make_error(Errc::unavailable, "the sandbox " + id.str() + " is being paused");
  auto dialling = engine.dial_agent(id);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dialling));
  if (port != client::kAgentPort) {
    auto connecting = connect_service(std::move(stream), port);
    ATOLL_CO_TRY_ASSIGN(stream, co_await std::move(connecting));
  }
  co_return net::HttpClient(
      std::make_unique<RoutedStream>(std::move(stream), std::move(inside), route));
}

}  // namespace

client::Inside inside_of(engine::Engine& engine, SandboxId id, std::string token) {
  if (token.empty()) {
    if (const auto route = engine.route(id)) token = route->spec().access_token;
  }
  client::Inside inside;
  inside.id = id.str();
  inside.token = token;
  inside.connect = [&engine, id](std::uint16_t port) { return connect_inside(engine, id, port); };
  inside.headers = [token](std::uint16_t port) {
    net::Headers headers;
    headers.add("Host", "localhost");
    if (port == client::kAgentPort && !token.empty()) headers.add("X-Access-Token", token);
    return headers;
  };
  return inside;
}

}  // namespace atl::proxy
