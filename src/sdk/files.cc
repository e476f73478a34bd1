#include "client/files.h"

#include <atoll/files.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "client/watch.h"
#include "sdk/state.h"

namespace atl::sdk {
namespace {

constexpr std::size_t kPiece = 256 << 10;

Entry entry_of(client::Entry entry) {
  Entry out;
  out.name = std::move(entry.name);
  out.path = std::move(entry.path);
  out.type = static_cast<EntryType>(entry.type);
  out.size = entry.size;
  out.mode = entry.mode;
  out.permissions = std::move(entry.permissions);
  out.owner = std::move(entry.owner);
  out.group = std::move(entry.group);
  out.modified_ms = entry.modified_ms;
  out.symlink_target = std::move(entry.symlink_target);
  return out;
}

net::Task<Result<Entry>> publish_entry(net::Task<atl::Result<client::Entry>> task) {
  auto entry = co_await std::move(task);
  if (!entry.ok()) co_return public_error(entry.error());
  co_return entry_of(std::move(*entry));
}

net::Task<Result<std::vector<Entry>>> list_all(client::Inside inside, std::string path,
                                               std::uint32_t depth, std::string user) {
  auto listing = client::list_directory(std::move(inside), std::move(path), depth, std::move(user));
  auto found = co_await std::move(listing);
  if (!found.ok()) co_return public_error(found.error());
  std::vector<Entry> out;
  out.reserve(found->size());
  for (auto& each : *found) out.push_back(entry_of(std::move(each)));
  co_return out;
}

// ---- piece by piece ----

using Sink = std::function<bool(std::string_view)>;
using Source = std::function<std::optional<std::size_t>(std::span<char>)>;

net::Task<Result<std::uint64_t>> read_pieces(std::weak_ptr<Io> weak, client::Inside inside,
                                             std::string path, std::string user, Sink sink,
                                             std::shared_ptr<Mailbox> box) {
  auto opening = client::Download::open(std::move(inside), std::move(path), std::move(user));
  auto download = co_await std::move(opening);
  if (!download.ok()) co_return public_error(download.error());
  std::string buffer(kPiece, '\0');
  std::uint64_t total = 0;
  for (;;) {
    auto reading = download->read_some(buffer);
    auto n = co_await std::move(reading);
    if (!n.ok()) co_return public_error(n.error());
    if (*n == 0) co_return total;
    total += *n;
    bool more = false;
    const std::string_view piece = std::string_view(buffer).substr(0, *n);
    auto delivering = deliver(weak.lock(), box, [&] { more = sink(piece); });
    if (!co_await std::move(delivering)) co_return callback_threw();
    if (!more) co_return Error{Code::canceled, "the sink had enough"};
  }
}

struct Filling {
  Source source;
  std::shared_ptr<Mailbox> box;
  std::weak_ptr<Io> io;
  std::uint64_t total = 0;
};

net::Task<atl::Result<std::size_t>> fill(std::shared_ptr<Filling> filling, std::span<char> into) {
  std::optional<std::size_t> n;
  auto delivering = deliver(filling->io.lock(), filling->box, [&] { n = filling->source(into); });
  if (!co_await std::move(delivering))
    co_return make_error(Errc::canceled, callback_threw().message);
  if (!n || *n > into.size()) co_return make_error(Errc::canceled, "the source failed");
  filling->total += *n;
  co_return *n;
}

net::Task<Result<std::uint64_t>> write_pieces(client::Inside inside, std::string path,
                                              std::string user, std::shared_ptr<Filling> filling,
                                              std::optional<std::uint64_t> length) {
  auto source = [filling](std::span<char> into) { return fill(filling, into); };
  auto sending = client::upload(std::move(inside), std::move(path), std::move(source), length,
                                std::move(user));
  auto sent = co_await std::move(sending);
  if (!sent.ok()) co_return public_error(sent.error());
  co_return filling->total;
}

// ---- files of this machine ----

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Error local_error(const std::string& path, int err) { return public_error(errno_error(path, err)); }

// ---- watches ----

net::Task<Result<std::shared_ptr<client::WatchStream>>> open_watch(client::Inside inside,
                                                                   std::string path, bool recursive,
                                                                   std::string user) {
  auto opening =
      client::WatchStream::open(std::move(inside), std::move(path), recursive, std::move(user));
  auto stream = co_await std::move(opening);
  if (!stream.ok()) co_return public_error(stream.error());
  co_return std::make_shared<client::WatchStream>(std::move(*stream));
}

struct Watching {
  std::shared_ptr<client::WatchStream> stream;
  std::function<void(const FileEvent&)> on_event;
  std::function<void(const Error&)> on_end;
  std::shared_ptr<Mailbox> box;
  std::shared_ptr<Gate> gate;
};

net::Task<void> pump(std::weak_ptr<Io> weak, Watching watching) {
  Error why = callback_threw();
  for (;;) {
    auto reading = watching.stream->next();
    auto event = co_await std::move(reading);
    if (!event.ok()) {
      why = public_error(event.error());
      break;
    }
    FileEvent told{static_cast<FileEvent::Type>(event->type), std::move(event->name)};
    auto delivering = deliver(weak.lock(), watching.box, watching.gate,
                              [call = watching.on_event, told = std::move(told)] { call(told); });
    if (!co_await std::move(delivering)) break;
  }
  watching.stream->close();
  if (watching.on_end && !watching.gate->is_shut()) {
    auto delivering = deliver(weak.lock(), watching.box, watching.gate,
                              [call = watching.on_end, why] { call(why); });
    (void)co_await std::move(delivering);
  }
}

}  // namespace

struct Watch::State {
  // Waits for nobody: it may be the network thread that drops it, which callbacks need.
  ~State() {
    gate->shut();
    close();
  }
  void close() {
    asio::post(core->io()->context, [stream = stream] { stream->close(); });
  }
  std::shared_ptr<Core> core;
  std::shared_ptr<client::WatchStream> stream;  // the network thread's
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
};

void Watch::stop() {
  const auto state = state_;
  state->gate->shut_and_wait();
  state->close();
}

Result<std::string> Files::read(std::string path, std::size_t limit) {
  return read_async(std::move(path), limit).get();
}

std::future<Result<std::string>> Files::read_async(std::string path, std::size_t limit) {
  return sandbox_->core->spawn(
      publish<std::string>(client::read_file(sandbox_->inside, std::move(path), limit, user_)));
}

Result<std::string> Files::write(std::string path, std::string bytes) {
  return write_async(std::move(path), std::move(bytes)).get();
}

std::future<Result<std::string>> Files::write_async(std::string path, std::string bytes) {
  return sandbox_->core->spawn(publish<std::string>(
      client::write_file(sandbox_->inside, std::move(path), std::move(bytes), user_)));
}

Result<std::uint64_t> Files::read_to(std::string path, Sink sink) {
  const auto sandbox = sandbox_;
  auto box = std::make_shared<Mailbox>();
  return sandbox->core->wait(box, read_pieces(sandbox->core->io(), sandbox->inside, std::move(path),
                                              user_, std::move(sink), box));
}

Result<std::uint64_t> Files::write_from(std::string path, Source source,
                                        std::optional<std::uint64_t> length) {
  const auto sandbox = sandbox_;
  auto box = std::make_shared<Mailbox>();
  auto filling = std::make_shared<Filling>(Filling{std::move(source), box, sandbox->core->io(), 0});
  return sandbox->core->wait(
      box, write_pieces(sandbox->inside, std::move(path), user_, std::move(filling), length));
}

Result<std::uint64_t> Files::download(std::string path, const std::string& local_path) {
  File file(std::fopen(local_path.c_str(), "wbe"));
  if (!file) return local_error(local_path, errno);
  int failed = 0;
  auto sink = [&](std::string_view piece) {
    if (std::fwrite(piece.data(), 1, piece.size(), file.get()) != piece.size()) failed = errno;
    return failed == 0;
  };
  auto total = read_to(std::move(path), sink);
  if (failed != 0) return local_error(local_path, failed);
  if (total.ok() && std::fflush(file.get()) != 0) return local_error(local_path, errno);
  return total;
}

Result<std::uint64_t> Files::upload(const std::string& local_path, std::string path) {
  File file(std::fopen(local_path.c_str(), "rbe"));
  if (!file) return local_error(local_path, errno);
  int failed = 0;
  auto source = [&](std::span<char> into) -> std::optional<std::size_t> {
    const std::size_t n = std::fread(into.data(), 1, into.size(), file.get());
    if (n == 0 && std::ferror(file.get()) != 0) {
      failed = errno;
      return std::nullopt;
    }
    return n;
  };
  auto total = write_from(std::move(path), source);
  if (failed != 0) return local_error(local_path, failed);
  return total;
}

Result<std::vector<Entry>> Files::list(std::string path, std::uint32_t depth) {
  const auto sandbox = sandbox_;
  return sandbox->core->wait(list_all(sandbox->inside, std::move(path), depth, user_));
}

Result<Entry> Files::stat(std::string path) {
  const auto sandbox = sandbox_;
  return sandbox->core->wait(
      publish_entry(client::stat_file(sandbox->inside, std::move(path), user_)));
}

Result<bool> Files::exists(std::string path) {
  auto entry = stat(std::move(path));
  if (entry.ok()) return true;
  if (entry.error().code == Code::not_found) return false;
  return entry.error();
}

Result<bool> Files::make_dir(std::string path) {
  const auto sandbox = sandbox_;
  auto made = sandbox->core->wait(
      publish_entry(client::make_directory(sandbox->inside, std::move(path), user_)));
  if (made.ok()) return true;
  if (made.error().code == Code::already_exists) return false;
  return made.error();
}

Result<Entry> Files::rename(std::string from, std::string to) {
  const auto sandbox = sandbox_;
  return sandbox->core->wait(
      publish_entry(client::move_file(sandbox->inside, std::move(from), std::move(to), user_)));
}

Result<void> Files::remove(std::string path) {
  const auto sandbox = sandbox_;
  return sandbox->core->wait(
      publish<void>(client::remove_file(sandbox->inside, std::move(path), user_)));
}

Result<Watch> Files::watch(std::string path, std::function<void(const FileEvent&)> on_event,
                           WatchOptions options) {
  if (!on_event) return Error{Code::invalid_argument, "a watch needs somebody who is told"};
  const auto sandbox = sandbox_;
  auto opened =
      sandbox->core->wait(open_watch(sandbox->inside, std::move(path), options.recursive, user_));
  if (!opened.ok()) return opened.error();
  auto state = std::make_shared<Watch::State>();
  state->core = sandbox->core;
  state->stream = *opened;
  Watching watching{std::move(*opened), std::move(on_event), std::move(options.on_end),
                    sandbox->core->dispatcher(), state->gate};
  asio::co_spawn(sandbox->core->io()->context, pump(sandbox->core->io(), std::move(watching)),
                 [](std::exception_ptr) {});
  return Watch(std::move(state));
}

}  // namespace atl::sdk
