#include "client/watch.h"

#include "agent/filesystem.pb.h"
#include "client/agent_call.h"

namespace atl::client {
namespace {

namespace pb = ::filesystem;

FileEvent::Type type_of(pb::EventType type) {
  switch (type) {
    case pb::EVENT_TYPE_CREATE:
      return FileEvent::Type::create;
    case pb::EVENT_TYPE_WRITE:
      return FileEvent::Type::write;
    case pb::EVENT_TYPE_REMOVE:
      return FileEvent::Type::remove;
    case pb::EVENT_TYPE_RENAME:
      return FileEvent::Type::rename;
    case pb::EVENT_TYPE_CHMOD:
      return FileEvent::Type::chmod;
    default:
      return FileEvent::Type::other;
  }
}

}  // namespace

struct WatchStream::Impl {
  explicit Impl(net::HttpClient c) : client(std::move(c)) {}

  net::Task<Result<void>> read(pb::WatchDirResponse& message) {
    auto reading = events->next(message);
    auto more = co_await std::move(reading);
    if (!more.ok()) co_return agent_error(std::move(more).error());
    if (!*more) co_return make_error(Errc::unavailable, "the watch ended");
    co_return Result<void>();
  }

  net::HttpClient client;
  std::optional<rpc::ServerStream> events;
};

WatchStream::WatchStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WatchStream::WatchStream(WatchStream&&) noexcept = default;
WatchStream& WatchStream::operator=(WatchStream&&) noexcept = default;
WatchStream::~WatchStream() = default;

net::Task<Result<WatchStream>> WatchStream::open(Inside inside, std::string path, bool recursive,
                                                 std::string user) {
  pb::WatchDirRequest request;
  request.set_path(std::move(path));
  request.set_recursive(recursive);
  rpc::CallOptions options;
  options.headers = agent_headers(inside, user);
  auto connecting = inside.connect(kAgentPort);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  auto impl = std::make_unique<Impl>(std::move(client));
  const Guard guard(impl->client.stream(), kCallTime);
  auto opening = rpc::ServerStream::open(impl->client, "/filesystem.Filesystem/WatchDir", request,
                                         std::move(options));
  auto opened = co_await std::move(opening);
  if (!opened.ok()) co_return agent_error(std::move(opened).error());
  impl->events.emplace(std::move(*opened));
  pb::WatchDirResponse first;
  auto reading = impl->read(first);
  ATOLL_CO_TRY(co_await std::move(reading));
  if (!first.has_start())
    co_return make_error(Errc::data_loss, "the agent's first event is not a start");
  co_return WatchStream(std::move(impl));
}

net::Task<Result<FileEvent>> WatchStream::next() {
  for (;;) {
    pb::WatchDirResponse message;
    auto reading = impl_->read(message);
    ATOLL_CO_TRY(co_await std::move(reading));
    if (!message.has_filesystem()) continue;
    co_return FileEvent{type_of(message.filesystem().type()), message.filesystem().name()};
  }
}

void WatchStream::close() { impl_->client.stream().close(); }

}  // namespace atl::client
