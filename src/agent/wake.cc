#include "agent/wake.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/file_io.h"
#include "base/encoding.h"
#include "base/json.h"
#include "base/sha256.h"

namespace atl::agent {
namespace {

constexpr std::size_t kSeedDigits = 64;
constexpr std::size_t kMaxHostName = 63;
constexpr std::size_t kMaxFile = 64 << 10;

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  });
}

bool is_host_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxHostName && text.front() != '-' &&
         text.back() != '-' && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-';
         });
}

Result<std::string> read_small(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return errno_error("open " + path);
  std::string text(kMaxFile, '\0');
  const ssize_t n = ::read(fd.get(), text.data(), text.size());
  if (n < 0) return errno_error("read " + path);
  if (std::size_t(n) == text.size())
    return make_error(Errc::invalid_argument, path + " is too long");
  text.resize(std::size_t(n));
  return text;
}

Result<void> write_small(const std::string& path, std::string_view text) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
               0644));
  if (!fd) return errno_error("open " + path);
  if (::write(fd.get(), text.data(), text.size()) != ssize_t(text.size()))
    return errno_error("write " + path);
  return {};
}

// Whole words only.
std::string replace_words(std::string_view text, std::string_view from, std::string_view to) {
  constexpr std::string_view kBetween = " \t\r\n";
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(kBetween), text.size());
    out += text.substr(0, end) == from ? to : text.substr(0, end);
    text.remove_prefix(end);
    const std::size_t next = std::min(text.find_first_not_of(kBetween), text.size());
    out += text.substr(0, next);
    text.remove_prefix(next);
  }
  return out;
}

}  // namespace

Result<WakeRequest> parse_wake(std::string_view body) {
  WakeRequest request;
  ATOLL_TRY_ASSIGN(request.init, parse_init(body));
  ATOLL_TRY_ASSIGN(const json::value document, parse_json(body));
  const json::object& object = document.as_object();  // or parse_init had refused it
  const auto bad = [](const char* what) { return make_error(Errc::invalid_argument, what); };
  if (const json::value* forked = object.if_contains("forked")) {
    if (!forked->is_bool()) return bad("forked must be true or false");
    request.forked = forked->get_bool();
  }
  if (const json::value* seed = object.if_contains("seed"); seed && !seed->is_null()) {
    if (!seed->is_string() || seed->get_string().size() != kSeedDigits ||
        !is_hex(seed->get_string()))
      return bad("seed must be 64 hexadecimal digits");
    request.seed = seed->get_string();
  }
  if (request.forked && request.seed.empty()) return bad("seed is missing");
  if (const json::value* name = object.if_contains("hostname"); name && !name->is_null()) {
    if (!name->is_string() || !is_host_name(name->get_string()))
      return bad("hostname must be a name without dots");
    request.hostname = std::string(name->get_string());
  }
  return request;
}

std::string derive_seed(std::string_view seed, std::string_view whose) {
  Sha256 hash;
  hash.update(seed);
  hash.update(":");
  hash.update(whose);
  return hex_encode(hash.finish());
}

Result<void> set_host_name(const std::string& name, const std::string& root) {
  // Filters may keep it from us; the name in the images of a restored sandbox is right already.
  if (root.empty()) (void)!::sethostname(name.data(), name.size());
  const std::string file = root + "/etc/hostname";
  auto old = read_small(file);
  if (old.ok()) {
    while (!old->empty() && old->back() == '\n') old->pop_back();
    if (*old == name) return {};
  }
  ATOLL_TRY(write_small(file, name + "\n"));
  if (!old.ok() || old->empty()) return {};
  const std::string hosts = root + "/etc/hosts";
  ATOLL_TRY_ASSIGN(const std::string text, read_small(hosts));
  const std::string renamed = replace_words(text, *old, name);
  if (renamed == text) return {};
  return write_small(hosts, renamed);
}

}  // namespace atl::agent
