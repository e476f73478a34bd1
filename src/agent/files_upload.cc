#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <set>

#include "agent/content.h"
#include "agent/files.h"
#include "agent/gzip.h"
#include "agent/http_glue.h"
#include "agent/multipart.h"
#include "agent/paths.h"
#include "agent/slice.h"

namespace atl::agent {
namespace {

// Everything one upload request needs on its way through the parts.
struct Upload {
  const AgentState& state;
  const User& user;
  const std::optional<std::string>& path;  // of the query
  Metadata metadata;
  std::set<std::string> written;
  json::array infos;
};

// "not enough disk space available" is what clients look for.
Error disk_error(Error error, std::string_view what) {
  if (is_disk_full(error.sys_errno)) {
    return std::move(error).with("not enough disk space available: " + std::string(what));
  }
  return std::move(error).with(what);
}

Result<std::string> target_of(Upload& upload, const std::string& name) {
  ATOLL_TRY_ASSIGN(std::string path,
                   resolve_path(name, upload.user, upload.state.default_workdir()));
  if (!upload.written.insert(path).second) {
    return make_error(Errc::invalid_argument,
                      "you cannot upload multiple files to the same path '" + path +
                          "' in one upload request, only the first specified file was uploaded");
  }
  return path;
}

Result<void> complete(Upload& upload, const std::string& path, UploadedFile file) {
  ATOLL_TRY_ASSIGN(Metadata kept, file.finish(upload.metadata));
  json::object info;
  info["name"] = base_name(path);
  info["path"] = path;
  info["type"] = "file";
  if (!kept.empty()) {
    json::object metadata;
    for (const auto& [key, value] : kept) metadata[key] = value;
    info["metadata"] = std::move(metadata);
  }
  upload.infos.push_back(std::move(info));
  return {};
}

// The whole body is one file. The buffer is filled before it is written, so that a small file is
// written at once.
net::Task<Result<void>> receive_raw(net::BodyReader& body, Upload& upload) {
  ATOLL_CO_TRY_ASSIGN(std::string path, target_of(upload, *upload.path));
  ATOLL_CO_TRY_ASSIGN(UploadedFile file, UploadedFile::open(path, upload.user));
  const std::unique_ptr<char[]> buffer(new char[kFileBufferBytes]);
  Slice slice;
  bool ended = false;
  while (!ended) {
    // A small compressed body can be a large file: reading alone does not give others a turn.
    if (slice.due_now()) co_await slice.yield();
    std::size_t filled = 0;
    std::optional<Error> failure;
    while (filled < kFileBufferBytes && !ended && !failure) {
      auto reading =
          body.read_some(std::span<char>(buffer.get() + filled, kFileBufferBytes - filled));
      auto n = co_await std::move(reading);
      if (!n.ok()) {
        failure = std::move(n).error();
      } else {
        filled += *n;
        ended = *n == 0;
      }
    }
    // What came before the connection broke is kept.
    ATOLL_CO_TRY(file.write(std::string_view(buffer.get(), filled)));
    if (failure) co_return std::move(*failure);
  }
  co_return complete(upload, path, std::move(file));
}

// Errors of the parser are the server's to report: a body that is no multipart is answered with 500
// by the protocol.
Error multipart_error(Error error) {
  error.code = Errc::internal;
  return std::move(error).with("error parsing multipart form");
}

net::Task<Result<void>> receive_multipart(net::BodyReader& body, std::string boundary,
                                          Upload& upload) {
  MultipartParser parser(boundary, kFileBufferBytes);
  std::optional<UploadedFile> file;
  std::string path;
  Slice slice;
  while (true) {
    if (slice.due()) co_await slice.yield();
    auto event = parser.next();
    if (!event.ok()) co_return multipart_error(std::move(event).error());
    switch (*event) {
      case MultipartParser::Event::need_more: {
        auto reading = body.read_some(parser.room());
        auto n = co_await std::move(reading);
        if (n.ok() && *n > 0) {
          parser.commit(*n);
          break;
        }
        if (file) {
          ATOLL_CO_TRY(file->write(parser.held_back()));
        }
        if (!n.ok()) co_return std::move(n).error();
        auto finished = parser.finish();
        if (!finished.ok()) co_return multipart_error(std::move(finished).error());
        co_return Result<void>();
      }
      case MultipartParser::Event::part_begin: {
        if (parser.part().name != "file") break;
        const std::string name = upload.path.value_or(parser.part().filename.value_or(""));
        ATOLL_CO_TRY_ASSIGN(path, target_of(upload, name));
        ATOLL_CO_TRY_ASSIGN(file, UploadedFile::open(path, upload.user));
        break;
      }
      case MultipartParser::Event::data:
        if (file) {
          ATOLL_CO_TRY(file->write(parser.data()));
        }
        break;
      case MultipartParser::Event::part_end:
        if (file) {
          ATOLL_CO_TRY(complete(upload, path, std::move(*file)));
        }
        file.reset();
        break;
      case MultipartParser::Event::end: {
        // To the end of the body: the checksum of a compressed one stands there.
        auto reading = body.read_some(parser.room());
        ATOLL_CO_TRY_ASSIGN(std::size_t n, co_await std::move(reading));
        if (n == 0) co_return Result<void>();
        parser.commit(n);
        break;
      }
    }
  }
}

net::Task<Result<void>> receive(net::Exchange& exchange, net::BodyReader& body, Upload& upload) {
  const std::string type(exchange.request.headers.get("Content-Type"));
  const std::string media = type.substr(0, type.find(';'));
  if (media.size() > 10 && net::iequals(std::string_view(media).substr(0, 10), "multipart/")) {
    auto boundary = multipart_boundary(type);
    if (!boundary.ok()) co_return multipart_error(std::move(boundary).error());
    co_return co_await receive_multipart(body, std::move(*boundary), upload);
  }
  if (net::iequals(media, "application/octet-stream")) {
    if (!upload.path || upload.path->empty()) {
      co_return make_error(Errc::invalid_argument,
                           "path query parameter is required for raw body upload");
    }
    co_return co_await receive_raw(body, upload);
  }
  co_return make_error(Errc::invalid_argument,
                       "unsupported content type: " + type +
                           ", expected multipart/form-data or application/octet-stream");
}

// Decodes the body if it is compressed.
net::Task<Result<void>> receive_encoded(net::Exchange& exchange, Upload& upload) {
  static constexpr std::string_view kContext = "error decompressing request body";
  auto encoding = content_encoding(exchange.request.headers.get("Content-Encoding"));
  if (!encoding.ok()) co_return std::move(encoding).error().with(kContext);
  if (*encoding == Encoding::identity) {
    co_return co_await receive(exchange, exchange.body, upload);
  }
  ATOLL_CO_TRY_ASSIGN(GzipDecoder decoder, GzipDecoder::create());
  GunzipReader decoded(exchange.body, std::move(decoder));
  auto received = co_await receive(exchange, decoded, upload);
  if (!received.ok() && received.error().message.starts_with("gzip: ")) {
    co_return std::move(received).error().with(kContext);
  }
  co_return received;
}

}  // namespace

// The calls and their order are what watchers see: CREATE, CHMOD, WRITE for a new file, CHMOD,
// WRITE for an old one.
Result<UploadedFile> UploadedFile::open(const std::string& path, const User& user) {
  if (auto made = ensure_dirs(parent_path(path), user); !made.ok()) {
    return disk_error(std::move(made).error(), "error ensuring directories");
  }
  static constexpr int kFlags = O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  Fd fd(::open(path.c_str(), kFlags));
  const bool existed = bool(fd);
  if (!fd && errno == ENOENT) fd = Fd(::open(path.c_str(), kFlags | O_CREAT | O_TRUNC, 0666));
  if (!fd) {
    const int err = errno;
    if (err == EISDIR) return make_error(Errc::invalid_argument, "path is a directory: " + path);
    if (err == ENXIO) return make_error(Errc::invalid_argument, "path is not a file: " + path);
    return disk_error(os_error(Errc::internal, "open", path, err), "error opening file");
  }
  struct stat st{};
  if (::fstat(fd.get(), &st) != 0) {
    return os_error(Errc::internal, "stat", path, errno).with("error getting file info");
  }
  if (!S_ISREG(st.st_mode)) {
    return make_error(Errc::invalid_argument, "path is not a file: " + path);
  }
  if (::fchown(fd.get(), user.uid, user.gid) != 0) {
    return disk_error(os_error(Errc::internal, "chown", path, errno),
                      "error changing file ownership");
  }
  if (existed && ::ftruncate(fd.get(), 0) != 0) {
    return disk_error(os_error(Errc::internal, "truncate", path, errno), "error opening file");
  }
  return UploadedFile(std::move(fd));
}

Result<void> UploadedFile::write(std::string_view bytes) {
  if (bytes.empty()) return {};
  if (auto done = write_file(fd_.get(), bytes); !done.ok()) {
    return disk_error(std::move(done).error(),
                      "attempted to write " + std::to_string(written_ + bytes.size()) + " bytes");
  }
  written_ += bytes.size();
  return {};
}

Result<Metadata> UploadedFile::finish(const Metadata& metadata) {
  if (auto set = replace_metadata(fd_.get(), metadata); !set.ok()) {
    return disk_error(std::move(set).error(), "error writing file metadata");
  }
  if (metadata.empty()) return Metadata();
  return read_metadata(fd_.get());
}

net::Task<void> upload_files(net::Exchange& exchange, const AgentState& state, const User& user,
                             const std::optional<std::string>& path) {
  auto metadata = metadata_from_headers(exchange.request.headers);
  if (!metadata.ok()) co_return co_await send_failure(exchange, std::move(metadata).error());
  Upload upload{state, user, path, std::move(*metadata), {}, {}};
  auto receiving = receive_encoded(exchange, upload);
  auto received = co_await std::move(receiving);
  if (received.ok()) co_return co_await send_json(exchange, 200, std::move(upload.infos));
  // Nothing was read when the request was refused by its headers; the connection's own rules apply
  // then.
  if (!upload.written.empty()) co_await discard_body(exchange.body);
  co_await send_failure(exchange, std::move(received).error());
}

}  // namespace atl::agent
