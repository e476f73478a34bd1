// POST /files/compose: several uploaded pieces become one file, which appears whole or not at all.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "agent/files.h"
#include "agent/http_glue.h"
#include "agent/paths.h"
#include "agent/slice.h"
#include "base/ids.h"

namespace atl::agent {
namespace {

constexpr std::size_t kMaxBodyBytes = 1 << 20;
constexpr std::size_t kMaxSources = 10'000;
constexpr std::size_t kCopyBytes = 4 << 20;  // per step, between which other requests run

struct ComposeRequest {
  std::vector<std::string> sources;
  std::string destination;
  std::optional<std::string> username;
};

Error bad_request(std::string message) {
  return make_error(Errc::invalid_argument, std::move(message));
}

Result<ComposeRequest> parse_compose(std::string_view body) {
  auto parsed = parse_json(body);
  if (!parsed.ok()) return std::move(parsed).error().with("invalid request body");
  const json::object* object = parsed->if_object();
  if (object == nullptr) return bad_request("invalid request body: expected an object");
  ComposeRequest request;
  if (const json::value* sources = object->if_contains("source_paths")) {
    const json::array* list = sources->if_array();
    if (list == nullptr) return bad_request("invalid request body: source_paths must be an array");
    for (const json::value& item : *list) {
      const json::string* text = item.if_string();
      if (text == nullptr) {
        return bad_request("invalid request body: source_paths must contain strings");
      }
      request.sources.emplace_back(text->data(), text->size());
    }
  }
  if (const json::value* destination = object->if_contains("destination")) {
    const json::string* text = destination->if_string();
    if (text == nullptr) return bad_request("invalid request body: destination must be a string");
    request.destination.assign(text->data(), text->size());
  }
  const json::value* username = object->if_contains("username");
  if (username != nullptr && !username->is_null()) {
    const json::string* text = username->if_string();
    if (text == nullptr) return bad_request("invalid request body: username must be a string");
    request.username.emplace(text->data(), text->size());
  }
  if (request.sources.empty()) return bad_request("source_paths must not be empty");
  if (request.sources.size() > kMaxSources) {
    return bad_request("source_paths has more than " + std::to_string(kMaxSources) + " entries");
  }
  if (request.destination.empty()) return bad_request("destination must not be empty");
  return request;
}

// The path without links and dots if it exists, else cleaned: two spellings of one file compare
// equal.
std::string identity_of(const std::string& path) {
  const std::unique_ptr<char, decltype(&::free)> real(::realpath(path.c_str(), nullptr), &::free);
  return real != nullptr ? std::string(real.get()) : clean_path(path);
}

// Removed unless it was kept: a failed or abandoned compose leaves nothing.
class TemporaryFile {
 public:
  static Result<TemporaryFile> create(std::string path, const User& user) {
    Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd) return os_error(Errc::internal, "open", path, errno).with("error creating file");
    TemporaryFile file(std::move(fd), std::move(path));
    if (::fchown(file.fd(), user.uid, user.gid) != 0) {
      return os_error(Errc::internal, "chown", file.path_, errno);
    }
    return file;
  }
  TemporaryFile(TemporaryFile&& other) noexcept
      : fd_(std::move(other.fd_)), path_(std::exchange(other.path_, {})) {}
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  ~TemporaryFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  int fd() const { return fd_.get(); }
  Result<void> rename_to(const std::string& destination) {
    if (::rename(path_.c_str(), destination.c_str()) != 0) {
      return os_error(Errc::internal, "rename " + path_, destination, errno);
    }
    path_.clear();
    return {};
  }

 private:
  TemporaryFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
};

Result<Fd> open_piece(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno == ENOENT) {
    return make_error(Errc::not_found, "source file not found: " + path);
  }
  if (!fd && errno == ENXIO) return bad_request("source is not a regular file: " + path);
  if (!fd) return os_error(Errc::internal, "open", path, errno).with("error opening source file");
  struct stat st{};
  if (::fstat(fd.get(), &st) != 0) return os_error(Errc::internal, "stat", path, errno);
  if (!S_ISREG(st.st_mode)) return bad_request("source is not a regular file: " + path);
  return fd;
}

// One step; 0 = the source ended. Shares blocks where the filesystem can, else copies through
// `buffer`.
Result<std::size_t> copy_step(int from, int to, std::unique_ptr<char[]>& buffer) {
  if (buffer == nullptr) {
    const ssize_t n = ::copy_file_range(from, nullptr, to, nullptr, kCopyBytes, 0);
    if (n > 0) return std::size_t(n);
    if (n < 0 && errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS) {
      return Error{Errc::internal, errno, "copy: " + os_error_text(errno)};
    }
    // 0 may also be a file whose size says 0 and which has content; reading tells.
    buffer.reset(new char[kFileBufferBytes]);
  }
  ATOLL_TRY_ASSIGN(std::size_t n, read_file(from, std::span<char>(buffer.get(), kFileBufferBytes)));
  ATOLL_TRY(write_file(to, std::string_view(buffer.get(), n)));
  return n;
}

net::Task<Result<std::string>> compose(const ComposeRequest& request, const AgentState& state) {
  ATOLL_CO_TRY_ASSIGN(User user, rest_user(request.username, state));
  const std::string& workdir = state.default_workdir();
  ATOLL_CO_TRY_ASSIGN(std::string destination, resolve_path(request.destination, user, workdir));
  std::vector<std::string> sources;
  for (const std::string& given : request.sources) {
    ATOLL_CO_TRY_ASSIGN(std::string source, resolve_path(given, user, workdir));
    if (identity_of(source) == identity_of(destination)) {
      co_return bad_request("source path must not be the destination: " + source);
    }
    sources.push_back(std::move(source));
  }
  struct stat st{};
  if (::stat(destination.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) {
    co_return bad_request("path is a directory: " + destination);
  }
  // All of them are looked at before anything is made.
  for (const std::string& source : sources) {
    ATOLL_CO_TRY(open_piece(source));
  }
  if (auto made = ensure_dirs(parent_path(destination), user); !made.ok()) {
    co_return std::move(made).error().with("error ensuring directories");
  }
  ATOLL_CO_TRY_ASSIGN(
      TemporaryFile file,
      TemporaryFile::create(destination + ".e2b-compose." + random_uuid4() + ".tmp", user));
  Slice slice;
  for (const std::string& source : sources) {
    ATOLL_CO_TRY_ASSIGN(Fd from, open_piece(source));
    std::unique_ptr<char[]> buffer;
    while (true) {
      ATOLL_CO_TRY_ASSIGN(std::size_t n, copy_step(from.get(), file.fd(), buffer));
      if (n == 0) break;
      co_await slice.yield();
    }
  }
  ATOLL_CO_TRY(file.rename_to(destination));
  for (const std::string& source : sources) {
    if (::unlink(source.c_str()) != 0 && errno != ENOENT) {
      co_return os_error(Errc::internal, "unlink", source, errno).with("error removing source");
    }
  }
  co_return destination;
}

}  // namespace

net::Task<void> compose_files(net::Exchange& exchange, const AgentState& state) {
  auto body = co_await exchange.body.read_all(kMaxBodyBytes);
  if (!body.ok()) {
    const bool large = body.error().code == Errc::resource_exhausted;
    co_return co_await send_failure(exchange, std::move(body).error(),
                                    large ? std::optional<int>(413) : std::nullopt);
  }
  auto request = parse_compose(*body);
  if (!request.ok()) co_return co_await send_failure(exchange, std::move(request).error());
  auto composing = compose(*request, state);
  auto destination = co_await std::move(composing);
  if (!destination.ok()) {
    Error error = std::move(destination).error();
    if (is_disk_full(error.sys_errno)) {
      error = std::move(error).with("not enough disk space available");
    }
    co_return co_await send_failure(exchange, std::move(error));
  }
  json::object info;
  info["path"] = *destination;
  info["name"] = base_name(*destination);
  info["type"] = "file";
  co_await send_json(exchange, 200, std::move(info));
}

}  // namespace atl::agent
