#include "agent/ca_bundle.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "agent/file_io.h"
#include "agent/paths.h"
#include "agent/users.h"
#include "base/ids.h"

namespace atl::agent {
namespace {

constexpr std::string_view kBegin = "# atoll: begin\n";
constexpr std::string_view kEnd = "# atoll: end\n";
constexpr std::size_t kMaxList = 16 << 20;

// Empty if there is none.
Result<std::string> read_list(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno == ENOENT) return std::string();
  if (!fd) return errno_error("open " + path);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return errno_error("stat " + path);
  if (!S_ISREG(info.st_mode) || std::size_t(info.st_size) > kMaxList)
    return make_error(Errc::failed_precondition, path + " is not a list of certificates");
  std::string out(std::size_t(info.st_size), '\0');
  std::size_t at = 0;
  while (at < out.size()) {
    ATOLL_TRY_ASSIGN(std::size_t n,
                     read_file(fd.get(), std::span(out.data() + at, out.size() - at)));
    if (n == 0) break;
    at += n;
  }
  out.resize(at);
  return out;
}

Result<void> replace(const std::string& path, const std::string& content) {
  ATOLL_TRY_ASSIGN(const std::string current, read_list(path));
  if (current == content) return {};
  User root;
  root.name = "root";
  ATOLL_TRY(ensure_dirs(parent_path(path), root));
  const std::string temporary = path + "." + random_uuid4() + ".tmp";
  Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd) return errno_error("open " + temporary);
  auto written = write_file(fd.get(), content);
  if (written.ok() && ::rename(temporary.c_str(), path.c_str()) != 0)
    written = errno_error("rename " + temporary);
  if (!written.ok()) ::unlink(temporary.c_str());
  return written;
}

}  // namespace

Result<void> check_ca_bundle(std::string_view pem) {
  if (pem.size() > kMaxBundle) return make_error(Errc::invalid_argument, "caBundle is too long");
  if (pem.find('\0') != std::string_view::npos ||
      pem.find("-----BEGIN CERTIFICATE-----") == std::string_view::npos ||
      pem.find(kEnd) != std::string_view::npos) {
    return make_error(Errc::invalid_argument, "caBundle must be certificates in PEM");
  }
  return {};
}

std::string with_bundle(std::string_view list, std::string_view pem) {
  std::string section(kBegin);
  section += pem;
  if (!section.ends_with('\n')) section += '\n';
  section += kEnd;
  const std::size_t begin = list.find(kBegin);
  const std::size_t end = begin == std::string_view::npos ? begin : list.find(kEnd, begin);
  std::string out(list.substr(0, begin));
  if (end == std::string_view::npos) {
    if (!out.empty() && !out.ends_with('\n')) out += '\n';
    return out + section;
  }
  return out + section + std::string(list.substr(end + kEnd.size()));
}

Result<void> install_ca_bundle(const std::string& pem, const TrustStore& store) {
  ATOLL_TRY(replace(store.own, pem.ends_with('\n') ? pem : pem + "\n"));
  ATOLL_TRY_ASSIGN(const std::string list, read_list(store.system));
  return replace(store.system, with_bundle(list, pem));
}

std::map<std::string, std::string> ca_variables(const TrustStore& store) {
  return {{"NODE_EXTRA_CA_CERTS", store.own},
          {"REQUESTS_CA_BUNDLE", store.system},
          {"SSL_CERT_FILE", store.system}};
}

}  // namespace atl::agent
