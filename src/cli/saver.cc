#include "cli/saver.h"

#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "sys/files.h"

namespace atl::cli {
namespace {

constexpr std::size_t kPiece = 64 << 10;
constexpr int kMostCopies = 10'000;

Error system_error(std::string_view what) {
  return make_error(Errc::internal, std::string(what) + ": " + std::strerror(errno));
}

// ---- the process that writes ----

class Writer {
 public:
  Writer(std::string folder, int socket) : folder_(std::move(folder)), socket_(socket) {}

  void serve() {
    std::string message(kPiece + 1, '\0');
    for (;;) {
      const ssize_t n = ::recv(socket_, message.data(), message.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;
      answer(perform(message[0], std::string_view(message).substr(1, std::size_t(n) - 1)));
    }
  }

 private:
  Result<std::string> perform(char operation, std::string_view text) {
    if (operation == 'o') return open(std::string(text));
    if (operation == 'c') {
      file_.reset();
      return std::string();
    }
    if (operation != 'w' || !file_) return make_error(Errc::invalid_argument, "no file is open");
    while (!text.empty()) {
      const ssize_t n = ::write(file_.get(), text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error("cannot write");
      text.remove_prefix(std::size_t(n));
    }
    return std::string();
  }

  void answer(const Result<std::string>& result) {
    const std::string text = result.ok() ? "+" + *result : "-" + result.error().message;
    (void)::send(socket_, text.data(), std::min(text.size(), kPiece), MSG_NOSIGNAL);
  }

  Result<std::string> open(std::string name) {
    if (!is_savable_name(name))
      return make_error(Errc::invalid_argument, "not a name that is saved here");
    file_.reset();
    if (!root_) {
      if (::mkdir(folder_.c_str(), 0777) != 0 && errno != EEXIST)
        return system_error("cannot make " + folder_);
      root_ = sys::UniqueFd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!root_) return system_error("cannot open " + folder_);
    }
    for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
      const std::string parent = name.substr(0, at);
      const std::size_t slash = parent.rfind('/');
      ATOLL_TRY_ASSIGN(
          sys::UniqueFd above,
          sys::open_beneath(root_, slash == std::string::npos ? "" : parent.substr(0, slash),
                            O_RDONLY | O_DIRECTORY));
      ATOLL_TRY(sys::make_dir(above, slash == std::string::npos ? parent : parent.substr(slash + 1),
                              0777, sys::IfExists::keep));
    }
    const std::size_t base = name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1;
    std::size_t dot = name.rfind('.');
    if (dot == std::string::npos || dot <= base) dot = name.size();
    std::string candidate = name;
    for (int copy = 2; copy < kMostCopies; ++copy) {
      auto file =
          sys::open_beneath(root_, candidate, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
      if (file.ok()) {
        file_ = *std::move(file);
        return folder_ + "/" + candidate;
      }
      if (file.error().sys_errno != EEXIST) return std::move(file).error();
      candidate = name.substr(0, dot) + "-" + std::to_string(copy) + name.substr(dot);
    }
    return make_error(Errc::already_exists, "too many files of that name");
  }

  const std::string folder_;
  const int socket_;
  sys::UniqueFd root_;
  sys::UniqueFd file_;
};

std::optional<unsigned> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  unsigned number = 0;
  if (text == nullptr) return std::nullopt;
  const auto [end, ec] = std::from_chars(text, text + std::strlen(text), number);
  if (ec != std::errc() || *end != '\0') return std::nullopt;
  return number;
}

// Files belong to the person who typed sudo.
bool become_caller() {
  if (::geteuid() != 0) return true;
  const auto uid = number_in("SUDO_UID"), gid = number_in("SUDO_GID");
  if (!uid || !gid || *uid == 0) return true;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(*gid, *gid, *gid) == 0 &&
         ::setresuid(*uid, *uid, *uid) == 0;
}

[[noreturn]] void run_writer(std::string folder, sys::UniqueFd socket) {
  // Ctrl-C is for the command; this process ends with its socket.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(number, SIG_IGN);
  constexpr int kSocket = 3;
  if (::dup2(socket.get(), kSocket) != kSocket) ::_exit(1);
  if (::close_range(kSocket + 1, ~0U, 0) != 0 || !become_caller()) ::_exit(1);
  (void)socket.release();
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  Writer(std::move(folder), kSocket).serve();
  ::_exit(0);
}

}  // namespace

bool is_savable_name(std::string_view name) {
  constexpr std::size_t kMostParts = 32;
  if (name.empty() || name.size() > 1024) return false;
  if (std::any_of(name.begin(), name.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    return false;
  for (std::size_t parts = 1;; ++parts) {
    const std::string_view part = name.substr(0, name.find('/'));
    if (part.empty() || part == "." || part == ".." || part.size() > 240 || parts > kMostParts)
      return false;
    if (part.size() == name.size()) return true;
    name.remove_prefix(part.size() + 1);
  }
}

Result<Saver> Saver::start(std::string folder) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("socketpair");
  sys::UniqueFd ours(ends[0]), theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork");
  if (pid == 0) {
    ours.reset();
    run_writer(std::move(folder), std::move(theirs));
  }
  return Saver(pid, std::move(ours));
}

Saver::~Saver() {
  if (!socket_) return;
  socket_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<std::string> Saver::ask(char operation, std::string_view text) {
  std::string message(1, operation);
  message += text;
  if (::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0)
    return system_error("the process that saves files is gone");
  std::string answer(kPiece, '\0');
  ssize_t n = 0;
  do {
    n = ::recv(socket_.get(), answer.data(), answer.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) return make_error(Errc::unavailable, "the process that saves files is gone");
  answer.resize(std::size_t(n));
  if (answer[0] == '+') return answer.substr(1);
  return make_error(Errc::failed_precondition, answer.substr(1));
}

Result<std::string> Saver::open(const std::string& name) {
  if (!is_savable_name(name))
    return make_error(Errc::invalid_argument, "not a name that is saved here");
  return ask('o', name);
}

Result<void> Saver::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kPiece);
    ATOLL_TRY(ask('w', piece));
    bytes.remove_prefix(piece.size());
  }
  return {};
}

Result<void> Saver::close() {
  ATOLL_TRY(ask('c', ""));
  return {};
}

Result<std::string> Saver::save(const std::string& name, std::string_view bytes) {
  ATOLL_TRY_ASSIGN(std::string path, open(name));
  ATOLL_TRY(write(bytes));
  ATOLL_TRY(close());
  return path;
}

}  // namespace atl::cli
