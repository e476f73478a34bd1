// The watch procedures. A stream waits for its inotify descriptor itself; a polled watcher has a
// small task that empties the descriptor in the background, so that new directories are watched in
// time, and is emptied once more inside of the poll.
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <charconv>
#include <chrono>

#include "agent/entry.h"
#include "agent/filesystem.h"
#include "agent/paths.h"
#include "base/ids.h"
#include "base/log.h"

namespace atl::agent {
namespace {

namespace asio = net::asio;
using asio::posix::stream_descriptor;
using Clock = std::chrono::steady_clock;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kMaxPolledWatchers = 1024;
constexpr std::chrono::seconds kDefaultKeepalive{90};
constexpr std::chrono::seconds kMaxKeepalive{86'400};

std::chrono::seconds keepalive_interval(const net::Headers& headers) {
  const std::string_view text = headers.get("Keepalive-Ping-Interval");
  std::int64_t seconds = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (ec != std::errc() || end != text.data() + text.size() || seconds <= 0) {
    return kDefaultKeepalive;
  }
  return std::min(std::chrono::seconds(seconds), kMaxKeepalive);
}

template <class Request>
net::Task<Result<std::unique_ptr<Watcher>>> open_watcher(std::string path, const Request& request) {
  const WatchDepth depth = request.recursive() ? WatchDepth::tree : WatchDepth::directory;
  const NetworkMounts mounts =
      request.allow_network_mounts() ? NetworkMounts::allow : NetworkMounts::refuse;
  return Watcher::create(std::move(path), depth, mounts);
}

// Whether an event carries its entry; removed and renamed names have none.
bool wants_entry(filesystem::EventType type) {
  return type == filesystem::EVENT_TYPE_CREATE || type == filesystem::EVENT_TYPE_WRITE ||
         type == filesystem::EVENT_TYPE_CHMOD;
}

void fill_event(const Watcher& watcher, const WatchEvent& event, bool include_entry,
                filesystem::FilesystemEvent& out) {
  out.set_name(to_valid_utf8(event.name));
  out.set_type(event.type);
  if (!include_entry || !wants_entry(event.type)) return;
  filesystem::EntryInfo entry;
  if (read_entry(watcher.path_of(event), system_users(), entry).ok()) {
    *out.mutable_entry() = std::move(entry);
  }
}

net::Task<Result<void>> send_events(Watcher& watcher, bool include_entry, rpc::MessageSink& sink) {
  system_users().refresh();
  for (const WatchEvent& event : watcher.take()) {
    filesystem::WatchDirResponse message;
    fill_event(watcher, event, include_entry, *message.mutable_filesystem());
    ATOLL_CO_TRY(co_await sink.send(message));
  }
  co_return Result<void>();
}

// A borrowed view of the watcher's descriptor for Asio, which must not close it.
struct BorrowedDescriptor {
  BorrowedDescriptor(const asio::any_io_executor& executor, int fd) : descriptor(executor, fd) {}
  ~BorrowedDescriptor() { descriptor.release(); }
  BorrowedDescriptor(const BorrowedDescriptor&) = delete;
  BorrowedDescriptor& operator=(const BorrowedDescriptor&) = delete;
  stream_descriptor descriptor;
};

}  // namespace

// Order of the members: the descriptor's view goes before the descriptor itself.
struct FilesystemService::PolledWatcher {
  PolledWatcher(const asio::any_io_executor& executor, std::unique_ptr<Watcher> watcher_,
                bool include_entry_)
      : watcher(std::move(watcher_)),
        include_entry(include_entry_),
        view(executor, watcher->fd()) {}

  // Runs until the view is cancelled by `stop` or the watcher fails.
  static net::Task<void> keep_draining(std::shared_ptr<PolledWatcher> self) {
    while (!self->stopped) {
      auto [ec] = co_await self->view.descriptor.async_wait(stream_descriptor::wait_read, kUse);
      if (ec || self->stopped || !self->watcher->drain().ok()) co_return;
    }
  }

  void stop() {
    stopped = true;
    boost::system::error_code ignored;
    view.descriptor.cancel(ignored);
  }

  std::unique_ptr<Watcher> watcher;
  bool include_entry;
  bool stopped = false;
  BorrowedDescriptor view;
};

FilesystemService::~FilesystemService() {
  for (auto& [id, watcher] : watchers_) watcher->stop();
}

net::Task<Result<void>> FilesystemService::watch_dir(rpc::CallContext& call,
                                                     const filesystem::WatchDirRequest& request,
                                                     rpc::MessageSink& sink) {
  ATOLL_CO_TRY_ASSIGN(std::string path, path_of(call, request.path()));
  auto opening = open_watcher(std::move(path), request);
  ATOLL_CO_TRY_ASSIGN(std::unique_ptr<Watcher> watcher, co_await std::move(opening));
  const bool include_entry = request.include_entry();
  const auto interval = keepalive_interval(call.exchange.request.headers);

  const auto executor = co_await asio::this_coro::executor;
  const auto view = std::make_shared<BorrowedDescriptor>(executor, watcher->fd());
  asio::steady_timer timer(executor);

  filesystem::WatchDirResponse message;
  message.mutable_start();
  ATOLL_CO_TRY(co_await sink.send(message));
  auto silent_since = Clock::now();
  while (true) {
    const auto drained = watcher->drain();
    if (watcher->has_events()) {
      auto sending = send_events(*watcher, include_entry, sink);
      ATOLL_CO_TRY(co_await std::move(sending));
      silent_since = Clock::now();
    }
    if (!drained.ok()) co_return drained.error();
    if (Clock::now() - silent_since >= interval) {
      message.mutable_keepalive();
      ATOLL_CO_TRY(co_await sink.send(message));
      silent_since = Clock::now();
    }
    // The timer cuts the wait for the descriptor short. Its handler can be queued when this frame
    // ends, hence the weak reference.
    timer.expires_at(silent_since + interval);
    timer.async_wait(
        [weak = std::weak_ptr<BorrowedDescriptor>(view)](const boost::system::error_code& ec) {
          boost::system::error_code ignored;
          const auto alive = weak.lock();
          if (!ec && alive) alive->descriptor.cancel(ignored);
        });
    auto [ec] = co_await view->descriptor.async_wait(stream_descriptor::wait_read, kUse);
    (void)ec;  // cancelled by the timer: the keepalive is due. Cancelled with the call: the next
               // await throws.
    timer.cancel();
  }
}

net::Task<Result<filesystem::CreateWatcherResponse>> FilesystemService::create_watcher(
    rpc::CallContext& call, const filesystem::CreateWatcherRequest& request) {
  ATOLL_CO_TRY_ASSIGN(std::string path, path_of(call, request.path()));
  if (watchers_.size() >= kMaxPolledWatchers) {
    co_return make_error(Errc::resource_exhausted, "too many watchers; remove some first");
  }
  auto opening = open_watcher(std::move(path), request);
  ATOLL_CO_TRY_ASSIGN(std::unique_ptr<Watcher> watcher, co_await std::move(opening));
  // The watcher outlives this connection, so it runs on the loop itself and not on the connection's
  // strand.
  auto& loop = static_cast<asio::io_context&>(
      asio::query(co_await asio::this_coro::executor, asio::execution::context));
  auto polled = std::make_shared<PolledWatcher>(loop.get_executor(), std::move(watcher),
                                                request.include_entry());
  asio::co_spawn(loop, PolledWatcher::keep_draining(polled), [](std::exception_ptr failure) {
    if (failure) log::error("a watcher's background task ended with an exception");
  });
  filesystem::CreateWatcherResponse response;
  response.set_watcher_id("w" + random_base36(20));
  watchers_.emplace(response.watcher_id(), std::move(polled));
  co_return response;
}

Result<std::shared_ptr<FilesystemService::PolledWatcher>> FilesystemService::find_watcher(
    const std::string& id) const {
  const auto it = watchers_.find(id);
  if (it == watchers_.end()) {
    return make_error(Errc::not_found, "watcher with id " + id + " not found");
  }
  return it->second;
}

net::Task<Result<filesystem::GetWatcherEventsResponse>> FilesystemService::get_watcher_events(
    rpc::CallContext& /*call*/, const filesystem::GetWatcherEventsRequest& request) {
  ATOLL_CO_TRY_ASSIGN(auto polled, find_watcher(request.watcher_id()));
  ATOLL_CO_TRY(polled->watcher->drain());
  system_users().refresh();
  filesystem::GetWatcherEventsResponse response;
  for (const WatchEvent& event : polled->watcher->take()) {
    fill_event(*polled->watcher, event, polled->include_entry, *response.add_events());
  }
  co_return response;
}

net::Task<Result<filesystem::RemoveWatcherResponse>> FilesystemService::remove_watcher(
    rpc::CallContext& /*call*/, const filesystem::RemoveWatcherRequest& request) {
  ATOLL_CO_TRY_ASSIGN(auto polled, find_watcher(request.watcher_id()));
  watchers_.erase(request.watcher_id());
  polled->stop();
  co_return filesystem::RemoveWatcherResponse();
}

}  // namespace atl::agent
