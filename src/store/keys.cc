#include "store/keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/crypto.h"

namespace atl::store {
namespace {

constexpr std::size_t kKeyBytes = 20;
constexpr std::size_t kMaxKeyLength = 256;
constexpr std::size_t kMaxSecretFile = 4096;

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.pop_back();
  return text;
}

}  // namespace

Result<NewKey> create_key(Store& store, const std::string& team_id, const std::string& name) {
  const std::string value = random_hex(kKeyBytes);
  NewKey key;
  key.secret = std::string(kKeyPrefix) + value;
  key.record.id = random_uuid4();
  key.record.team_id = team_id;
  key.record.name = name;
  key.record.prefix = kKeyPrefix;
  key.record.value_length = int(value.size());
  key.record.mask_prefix = value.substr(0, 2);
  key.record.mask_suffix = value.substr(value.size() - 4);
  key.record.created_at = now();
  ATOLL_TRY(store.insert_key(key.record, sha256_hex(key.secret)));
  return key;
}

Result<std::optional<KeyRecord>> verify_key(Store& store, std::string_view secret) {
  if (secret.size() > kMaxKeyLength || !secret.starts_with(kKeyPrefix))
    return std::optional<KeyRecord>();
  // The lookup compares hashes: how long it takes says nothing about the key itself.
  ATOLL_TRY_ASSIGN(auto key, store.key_by_hash(sha256_hex(secret)));
  if (key) {
    ATOLL_TRY(store.touch_key(key->id, now()));
  }
  return key;
}

Result<DefaultKey> ensure_default_key(Store& store, const std::string& path) {
  auto content = read_secret_file(path);
  if (content.ok()) {
    const std::string secret = trimmed(*content);
    ATOLL_TRY_ASSIGN(auto known, verify_key(store, secret));
    if (known) return DefaultKey{secret, false};
  } else if (content.error().code != Errc::not_found) {
    return std::move(content).error().with("default key");
  }
  ATOLL_TRY_ASSIGN(NewKey key, create_key(store, store.default_team().id, "default"));
  if (auto written = write_secret_file(path, key.secret + "\n"); !written.ok()) {
    (void)store.delete_key(key.record.team_id,
                           key.record.id);  // the error of the write is the one to tell
    return std::move(written).error().with("default key");
  }
  return DefaultKey{key.secret, true};
}

Result<std::string> read_secret_file(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  if (file.fd < 0) return errno_error("open " + path);
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) return errno_error("stat " + path);
  if (!S_ISREG(info.st_mode))
    return make_error(Errc::failed_precondition, path + " is not a regular file");
  if ((info.st_mode & 077) != 0) {
    return make_error(Errc::failed_precondition,
                      path + " can be read by others: chmod 600 " + path);
  }
  std::string content(kMaxSecretFile, '\0');
  const ssize_t n = ::read(file.fd, content.data(), content.size());
  if (n < 0) return errno_error("read " + path);
  content.resize(std::size_t(n));
  return content;
}

Result<void> write_secret_file(const std::string& path, std::string_view content) {
  const std::string temporary = path + "." + random_hex(8);
  {
    const Descriptor file{
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (file.fd < 0) return errno_error("create " + temporary);
    const ssize_t n = ::write(file.fd, content.data(), content.size());
    if (n != ssize_t(content.size()) || ::fsync(file.fd) != 0) {
      const int err = n < 0 || n == ssize_t(content.size()) ? errno : ENOSPC;
      ::unlink(temporary.c_str());
      return errno_error("write " + temporary, err);
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int err = errno;
    ::unlink(temporary.c_str());
    return errno_error("rename to " + path, err);
  }
  return {};
}

}  // namespace atl::store
