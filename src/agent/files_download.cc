#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "agent/content.h"
#include "agent/files.h"
#include "agent/gzip.h"
#include "agent/http_glue.h"
#include "agent/paths.h"
#include "agent/slice.h"

namespace atl::agent {
namespace {

// Clients that list gzip among others get it for files of this size: below it costs more than it
// saves, above it the compressor and not the connection would set the pace. Clients that ask for
// gzip alone always get it.
constexpr std::uint64_t kCasualGzipFrom = 1024;
constexpr std::uint64_t kCasualGzipTo = 1 << 20;
constexpr int kGzipLevel = 1;
constexpr std::size_t kLeastBuffer = 16 * 1024;

// A file being sent. The first buffer is read before the head of the answer goes out: it tells the
// type, and the true length of files that lie about it (procfs says 0, sysfs says a page).
struct Source {
  Fd fd;
  std::string name;
  struct stat st{};
  std::unique_ptr<char[]> buffer;
  std::size_t capacity = 0;
  std::size_t filled = 0;  // of the first buffer
  bool whole = false;      // the file ends in the first buffer

  std::string_view first() const { return {buffer.get(), filled}; }
  // nullopt: only reading on tells.
  std::optional<std::uint64_t> length() const {
    if (whole) return filled;
    const auto size = std::uint64_t(st.st_size);
    if (size > filled) return size;
    return std::nullopt;
  }
};

Result<Source> open_source(const std::string& path) {
  Source source;
  if (::stat(path.c_str(), &source.st) != 0) {
    if (errno == ENOENT) {
      return make_error(Errc::not_found, "path '" + path + "' does not exist");
    }
    return os_error(Errc::internal, "stat", path, errno).with("error checking if path exists");
  }
  if (S_ISDIR(source.st.st_mode)) {
    return make_error(Errc::invalid_argument, "path '" + path + "' is a directory");
  }
  if (!S_ISREG(source.st.st_mode)) {
    return make_error(Errc::invalid_argument, "path '" + path + "' is not a regular file");
  }
  source.fd = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!source.fd || ::fstat(source.fd.get(), &source.st) != 0) {
    const Errc code = errno == ENOENT ? Errc::not_found : Errc::internal;
    return os_error(code, "open", path, errno).with("error opening file");
  }
  if (!S_ISREG(source.st.st_mode)) {
    return make_error(Errc::invalid_argument, "path '" + path + "' is not a regular file");
  }
  source.name = base_name(path);
  return source;
}

Result<void> read_first(Source& source) {
  const auto size = std::uint64_t(std::max<off_t>(source.st.st_size, 0));
  source.capacity =
      std::size_t(std::clamp<std::uint64_t>(size + 1, kLeastBuffer, kFileBufferBytes));
  source.buffer.reset(new char[source.capacity]);
  // procfs gives a piece per read: only 0 is the end.
  while (source.filled < source.capacity) {
    ATOLL_TRY_ASSIGN(std::size_t n,
                     read_file(source.fd.get(), std::span<char>(source.buffer.get() + source.filled,
                                                                source.capacity - source.filled)));
    source.filled += n;
    if (n == 0) {
      source.whole = true;
      break;
    }
  }
  return {};
}

net::Headers headers_of(const Source& source) {
  net::Headers headers{{"Content-Disposition", content_disposition(source.name)},
                       {"Content-Type", content_type(source.name, source.first())},
                       {"Vary", "Accept-Encoding"}};
  if (const std::string date = http_date(source.st.st_mtim.tv_sec); !date.empty()) {
    headers.add("Last-Modified", date);
  }
  return headers;
}

// The rest of the file, after the first buffer. With a length it stops there, whatever the file has
// become.
net::Task<Result<void>> send_rest(net::ResponseWriter& response, Source& source,
                                  std::optional<std::uint64_t> left) {
  while (!left || *left > 0) {
    const std::size_t want =
        std::size_t(std::min<std::uint64_t>(left.value_or(source.capacity), source.capacity));
    ATOLL_CO_TRY_ASSIGN(std::size_t n,
                        read_file(source.fd.get(), std::span<char>(source.buffer.get(), want)));
    if (n == 0) break;
    auto writing = response.write(std::string_view(source.buffer.get(), n));
    ATOLL_CO_TRY(co_await std::move(writing));
    if (left) *left -= n;
  }
  co_return Result<void>();
}

net::Task<Result<void>> send_identity(net::ResponseWriter& response, Source& source) {
  net::Headers headers = headers_of(source);
  headers.add("Accept-Ranges", "bytes");
  const auto length = source.length();
  if (source.whole) {
    co_return co_await response.send(200, std::move(headers), std::string(source.first()));
  }
  ATOLL_CO_TRY(co_await response.start(200, std::move(headers), length));
  ATOLL_CO_TRY(co_await response.write(source.first()));
  std::optional<std::uint64_t> left;
  if (length) left = *length - source.filled;
  ATOLL_CO_TRY(co_await send_rest(response, source, left));
  co_return co_await response.finish();
}

net::Task<Result<void>> send_range(net::ResponseWriter& response, Source& source,
                                   Selection selection, std::uint64_t size) {
  net::Headers headers = headers_of(source);
  headers.add("Accept-Ranges", "bytes");
  headers.add("Content-Range", "bytes " + std::to_string(selection.offset) + "-" +
                                   std::to_string(selection.offset + selection.length - 1) + "/" +
                                   std::to_string(size));
  ATOLL_CO_TRY(co_await response.start(206, std::move(headers), selection.length));
  std::uint64_t at = selection.offset;
  std::uint64_t left = selection.length;
  while (left > 0) {
    const std::size_t want = std::size_t(std::min<std::uint64_t>(left, source.capacity));
    ATOLL_CO_TRY_ASSIGN(
        std::size_t n,
        read_file_at(source.fd.get(), std::span<char>(source.buffer.get(), want), at));
    if (n == 0) break;
    ATOLL_CO_TRY(co_await response.write(std::string_view(source.buffer.get(), n)));
    at += n;
    left -= n;
  }
  co_return co_await response.finish();
}

net::Task<Result<void>> send_gzip(net::ResponseWriter& response, Source& source) {
  ATOLL_CO_TRY_ASSIGN(GzipEncoder encoder, GzipEncoder::create(kGzipLevel));
  net::Headers headers = headers_of(source);
  headers.add("Content-Encoding", "gzip");
  ATOLL_CO_TRY(co_await response.start(200, std::move(headers), std::nullopt));
  const std::unique_ptr<char[]> storage(new char[source.capacity]);
  const std::span<char> out(storage.get(), source.capacity);
  std::string_view in = source.first();
  Slice slice;
  while (true) {
    if (slice.due_now()) co_await slice.yield();
    while (!in.empty()) {
      ATOLL_CO_TRY_ASSIGN(std::size_t n, encoder.encode(in, out));
      if (n > 0) {
        ATOLL_CO_TRY(co_await response.write(std::string_view(out.data(), n)));
      }
    }
    if (source.whole) break;
    ATOLL_CO_TRY_ASSIGN(
        std::size_t n,
        read_file(source.fd.get(), std::span<char>(source.buffer.get(), source.capacity)));
    source.whole = n == 0;
    in = std::string_view(source.buffer.get(), n);
  }
  while (true) {
    ATOLL_CO_TRY_ASSIGN(std::size_t n, encoder.finish(out));
    if (n == 0) break;
    ATOLL_CO_TRY(co_await response.write(std::string_view(out.data(), n)));
  }
  co_return co_await response.finish();
}

Encoding chosen_encoding(const AcceptedEncoding& accepted, const Source& source) {
  if (accepted.encoding == Encoding::identity) return Encoding::identity;
  if (!accepted.among_others || !accepted.identity_allowed) return Encoding::gzip;
  const auto length = source.length();
  const bool pays = length && *length >= kCasualGzipFrom && *length <= kCasualGzipTo;
  return pays ? Encoding::gzip : Encoding::identity;
}

net::Task<Result<void>> respond(net::Exchange& exchange, Source& source,
                                const AcceptedEncoding& accepted) {
  const net::Headers& asked = exchange.request.headers;
  const auto length = source.length();
  if (length && is_range_or_conditional(asked)) {
    const Selection selection = select_content(asked, *length, source.st.st_mtim.tv_sec);
    net::Headers headers{{"Vary", "Accept-Encoding"},
                         {"Last-Modified", http_date(source.st.st_mtim.tv_sec)}};
    if (selection.status == 206) {
      co_return co_await send_range(exchange.response, source, selection, *length);
    }
    if (selection.status == 416) {
      headers.add("Content-Range", "bytes */" + std::to_string(*length));
      co_await send_plain_error(exchange, 416, "invalid range: failed to overlap", headers);
      co_return Result<void>();
    }
    if (selection.status == 412) {
      co_await send_plain_error(exchange, 412, "precondition failed", headers);
      co_return Result<void>();
    }
    if (selection.status == 304) {
      co_await send_empty(exchange, 304, headers);
      co_return Result<void>();
    }
    co_return co_await send_identity(exchange.response, source);
  }
  if (chosen_encoding(accepted, source) == Encoding::gzip) {
    co_return co_await send_gzip(exchange.response, source);
  }
  co_return co_await send_identity(exchange.response, source);
}

}  // namespace

net::Task<void> download_file(net::Exchange& exchange, const std::string& path) {
  auto source = open_source(path);
  if (!source.ok()) co_return co_await send_failure(exchange, std::move(source).error());
  const net::Headers& asked = exchange.request.headers;
  auto accepted = accept_encoding(asked.get("Accept-Encoding"));
  if (accepted.ok() && is_range_or_conditional(asked) && !accepted->identity_allowed) {
    accepted = make_error(Errc::invalid_argument,
                          "no acceptable encoding found: ranges and conditions need identity");
  }
  if (!accepted.ok()) co_return co_await send_failure(exchange, std::move(accepted).error(), 406);
  if (auto read = read_first(*source); !read.ok()) {
    co_return co_await send_failure(exchange, std::move(read).error().with("error reading file"));
  }
  auto responding = respond(exchange, *source, *accepted);
  const auto done = co_await std::move(responding);
  // A failure after the head can only be shown by breaking the connection; a client that left early
  // sees nothing of it.
  if (!done.ok() && exchange.response.started() && !exchange.response.finished()) {
    exchange.response.abort();
  } else if (!done.ok() && !exchange.response.started()) {
    co_await send_failure(exchange, done.error());
  }
}

}  // namespace atl::agent
