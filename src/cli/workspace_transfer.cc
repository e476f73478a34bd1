// put and get: content between this machine and a workspace, streamed.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <chrono>
#include <cstdio>

#include "cli/remote.h"
#include "cli/table.h"
#include "cli/workspace.h"
#include "sys/fd.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kPiece = 256 << 10;

std::string last_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// On stderr, where somebody looks at it and it takes a while.
class Progress {
 public:
  explicit Progress(std::optional<std::uint64_t> total) : total_(total) {}
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  void add(std::size_t bytes) {
    done_ += bytes;
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(200);
    shown_ = true;
    fmt::print(stderr, "\r\033[K{}{}", show_bytes(double(done_)),
               total_ && *total_ > 0
                   ? fmt::format(" of {} ({}%)", show_bytes(double(*total_)), done_ * 100 / *total_)
                   : "");
  }

 private:
  const std::optional<std::uint64_t> total_;
  const bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::uint64_t done_ = 0;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(1);
};

Result<std::size_t> read_piece(int fd, std::span<char> into) {
  ssize_t count = 0;
  do {
    count = ::read(fd, into.data(), into.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) return errno_error("read the file");
  return std::size_t(count);
}

Result<void> write_piece(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("write the file");
    bytes.remove_prefix(std::size_t(count));
  }
  return {};
}

net::RequestHead request_head(const Remote& remote, const char* method, std::string target) {
  net::RequestHead head;
  head.method = method;
  head.target = std::move(target);
  head.headers.add("Host", remote.host);
  head.headers.add("X-API-Key", remote.key);
  return head;
}

Error refusal(int status, std::string_view body) {
  auto parsed = parse_json(body);
  std::string message = parsed.ok() ? text_of(*parsed, "message") : "";
  if (message.empty()) message = "the server answered " + std::to_string(status);
  return make_error(status == 404 ? Errc::not_found : Errc::internal, std::move(message));
}

// The head and the beginning of the body of an answer that is no 2xx, as an error.
net::Task<Result<net::ResponseHead>> expect_success(net::HttpClient& client) {
  auto heading = client.read_head();
  ATOLL_CO_TRY_ASSIGN(net::ResponseHead head, co_await std::move(heading));
  if (head.status >= 200 && head.status < 300) co_return head;
  auto reading = client.body().read_all(64 << 10);
  const auto body = co_await std::move(reading);
  co_return refusal(head.status, body.ok() ? std::string_view(*body) : std::string_view());
}

net::Task<Result<net::HttpClient>> connect_to(const Remote& remote) {
  auto opening = open_stream(remote);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(opening));
  co_return net::HttpClient(std::move(stream));
}

net::Task<Result<std::string>> send_file(const Remote& remote, std::string target, int fd,
                                         std::optional<std::uint64_t> length) {
  auto connecting = connect_to(remote);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  const net::RequestHead head = request_head(remote, "PUT", std::move(target));
  auto heading = client.write_head(head, length);
  ATOLL_CO_TRY(co_await std::move(heading));
  Progress progress(length);
  std::string buffer(kPiece, '\0');
  std::uint64_t left = length.value_or(UINT64_MAX);
  while (left > 0) {
    ATOLL_CO_TRY_ASSIGN(
        const std::size_t count,
        read_piece(fd, std::span(buffer).first(std::min<std::uint64_t>(kPiece, left))));
    if (count == 0) break;
    left -= count;
    auto writing = client.write_body(std::string_view(buffer).substr(0, count));
    if (auto written = co_await std::move(writing); !written.ok()) {
      // Refused before it was whole: the reason is there already.
      auto expecting = expect_success(client);
      auto answer = co_await std::move(expecting);
      if (!answer.ok() && answer.error().code != Errc::unavailable)
        co_return std::move(answer).error();
      co_return std::move(written).error();
    }
    progress.add(count);
  }
  if (length && left > 0)
    co_return make_error(Errc::data_loss, "the file became shorter while it was read");
  auto finishing = client.finish_body();
  ATOLL_CO_TRY(co_await std::move(finishing));
  auto expecting = expect_success(client);
  ATOLL_CO_TRY(co_await std::move(expecting));
  auto reading = client.body().read_all(64 << 10);
  co_return co_await std::move(reading);
}

net::Task<Result<std::uint64_t>> receive_file(const Remote& remote, std::string target, int fd) {
  auto connecting = connect_to(remote);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  const net::RequestHead head = request_head(remote, "GET", std::move(target));
  auto asking = client.write_request(head, {});
  ATOLL_CO_TRY(co_await std::move(asking));
  auto expecting = expect_success(client);
  ATOLL_CO_TRY(co_await std::move(expecting));
  Progress progress(client.body().content_length());
  std::string buffer(kPiece, '\0');
  std::uint64_t total = 0;
  for (;;) {
    auto reading = client.body().read_some(buffer);
    ATOLL_CO_TRY_ASSIGN(const std::size_t count, co_await std::move(reading));
    if (count == 0) co_return total;
    ATOLL_CO_TRY(write_piece(fd, std::string_view(buffer).substr(0, count)));
    total += count;
    progress.add(count);
  }
}

template <class T>
net::Task<void> keep(std::optional<T>& into, net::Task<T> task) {
  into.emplace(co_await std::move(task));
}

template <class T>
T run_to_end(net::Task<T> task) {
  asio::io_context io;
  std::optional<T> outcome;
  asio::co_spawn(io, keep(outcome, std::move(task)), [](std::exception_ptr) {});
  io.run();
  if (!outcome) return make_error(Errc::internal, "the transfer ended without an answer");
  return std::move(*outcome);
}

Result<void> receive_into(const WorkspaceOptions& options, int file) {
  ATOLL_TRY_ASSIGN(const Remote remote, find_remote(options.home));
  ATOLL_TRY(run_to_end(receive_file(remote, file_target(options, options.path), file)));
  return {};
}

// In a process of its own: whoever finds the server of a home gives up root for good, and would
// have no right to name the file in a folder of root's. What went wrong comes back by a pipe.
Result<void> receive_apart(const WorkspaceOptions& options, int file) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("make a pipe");
  const sys::UniqueFd from(ends[0]);
  sys::UniqueFd to(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("fork");
  if (pid == 0) {
    const Result<void> done = receive_into(options, file);
    if (!done.ok()) {
      const std::string text = char(done.error().code) + done.error().message;
      (void)!::write(to.get(), text.data(), text.size());
    }
    ::_exit(done.ok() ? 0 : 1);
  }
  to.reset();
  std::string told(4096, '\0');
  ssize_t n = 0;
  do n = ::read(from.get(), told.data(), told.size());
  while (n < 0 && errno == EINTR);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (n > 0) return make_error(Errc(told[0]), told.substr(1, std::size_t(n) - 1));
  if (status != 0) return make_error(Errc::internal, "the transfer ended early");
  return {};
}

}  // namespace

Result<int> workspace_put(const WorkspaceOptions& options) {
  std::string path = options.path;
  if (options.file == "-" && path.empty())
    return make_error(Errc::invalid_argument, "a path in the workspace is needed for stdin");
  if (path.empty() || path.ends_with('/')) path += last_name(options.file);
  sys::UniqueFd file;
  std::optional<std::uint64_t> length;
  if (options.file != "-") {
    file = sys::UniqueFd(::open(options.file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return errno_error("open " + options.file);
    struct stat st{};
    if (::fstat(file.get(), &st) != 0) return errno_error("look at " + options.file);
    if (S_ISDIR(st.st_mode))
      return make_error(Errc::invalid_argument, options.file + " is a folder: put its files");
    if (S_ISREG(st.st_mode)) length = std::uint64_t(st.st_size);
  }
  ATOLL_TRY_ASSIGN(const Remote remote, find_remote(options.home));
  ATOLL_TRY_ASSIGN(const std::string answer,
                   run_to_end(send_file(remote, file_target(options, path),
                                        file ? file.get() : STDIN_FILENO, length)));
  if (options.json) {
    fmt::print("{}\n", answer);
    return 0;
  }
  ATOLL_TRY_ASSIGN(const json::value written, parse_json(answer));
  fmt::print("{}\t{}\n", printable(text_of(written, "path")),
             printable(text_of(written, "version")));
  return 0;
}

Result<int> workspace_get(const WorkspaceOptions& options) {
  const std::string name = options.file.empty() ? last_name(options.path) : options.file;
  if (name.empty()) return make_error(Errc::invalid_argument, "a path of a file is needed");
  if (name == "-") {
    ATOLL_TRY(receive_into(options, STDOUT_FILENO));
    return 0;
  }
  // A file that was there before stays until the new one is whole.
  const std::string temporary = name + ".part";
  const sys::UniqueFd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) return errno_error("make " + temporary);
  const Result<void> received = receive_apart(options, file.get());
  struct stat st{};
  if (received.ok() && ::fstat(file.get(), &st) == 0 &&
      ::rename(temporary.c_str(), name.c_str()) == 0) {
    if (options.json) {
      fmt::print("{}\n", json::serialize(json::object{{"file", name}, {"size", st.st_size}}));
    } else {
      fmt::print("{}\n", printable(name));
    }
    return 0;
  }
  const int err = errno;
  ::unlink(temporary.c_str());
  if (!received.ok()) return received.error();
  return errno_error("rename " + temporary, err);
}

}  // namespace atl::cli
