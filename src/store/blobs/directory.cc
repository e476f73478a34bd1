#include "store/blobs/directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/ids.h"
#include "store/blobs/directory_walk.h"
#include "store/blobs/key.h"
#include "store/blobs/offload.h"
#include "sys/fd.h"
#include "sys/files.h"

namespace atl::blobs {
namespace {

namespace asio = net::asio;

constexpr std::size_t kPiece = 512 << 10;
constexpr unsigned kThreads = 3;
// A removal may take an empty directory away between its making and its use.
constexpr int kAttempts = 20;

// The three directories; shared with whatever is under way.
struct Root {
  std::string path;
  sys::UniqueFd lock;
  sys::UniqueFd temporary;
  sys::UniqueFd blobs;
};
using RootPtr = std::shared_ptr<const Root>;

// A put under way: its file is gone with it unless it was published.
class Draft {
 public:
  static Result<Draft> open(RootPtr root) {
    Draft draft(std::move(root), random_hex(16));
    draft.file_ = sys::UniqueFd(::openat(draft.root_->temporary.get(), draft.name_.c_str(),
                                         O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!draft.file_) return errno_error("make a file for a blob");
    return draft;
  }
  Draft(Draft&&) = default;
  Draft& operator=(Draft&&) = delete;
  ~Draft() {
    if (root_ && file_) ::unlinkat(root_->temporary.get(), name_.c_str(), 0);
  }

  Result<void> append(std::string_view bytes) {
    ATOLL_TRY(sys::write_at(file_, size_, bytes));
    size_ += bytes.size();
    return {};
  }
  std::uint64_t size() const { return size_; }

  Result<void> publish(const std::string& key) {
    ATOLL_TRY(sys::flush_to_disk(file_));
    for (int attempt = 0;; ++attempt) {
      ATOLL_TRY(make_parents(key));
      if (::renameat(root_->temporary.get(), name_.c_str(), root_->blobs.get(), key.c_str()) == 0)
        break;
      if (errno != ENOENT || attempt == kAttempts) return errno_error("publish a blob");
    }
    file_.reset();
    return flush_parent(key);
  }

 private:
  Draft(RootPtr root, std::string name) : root_(std::move(root)), name_(std::move(name)) {}

  Result<void> make_parents(const std::string& key) const {
    for (std::size_t slash = key.find('/'); slash != std::string::npos;
         slash = key.find('/', slash + 1)) {
      const std::string dir = key.substr(0, slash);
      if (::mkdirat(root_->blobs.get(), dir.c_str(), 0700) == 0) {
        ATOLL_TRY(flush_parent(dir));
      } else if (errno == ENOENT) {
        return {};  // a parent was taken away: the rename fails and it is tried again
      } else if (errno != EEXIST) {
        return errno_error("make a directory of blobs");
      }
    }
    return {};
  }

  Result<void> flush_parent(const std::string& path) const {
    const std::size_t slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash);
    const sys::UniqueFd dir(
        ::openat(root_->blobs.get(), parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!dir) {
      if (errno == ENOENT) return {};  // removed again already, with all in it
      return errno_error("open a directory of blobs");
    }
    return sys::flush_to_disk(dir);
  }

  RootPtr root_;
  std::string name_;
  sys::UniqueFd file_;
  std::uint64_t size_ = 0;
};

Result<void> remove_blob(const Root& root, std::string key) {
  if (::unlinkat(root.blobs.get(), key.c_str(), 0) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    return errno_error("remove a blob");
  }
  std::size_t slash = key.rfind('/');
  bool flushed = false;
  while (slash != std::string::npos) {
    key.resize(slash);
    if (::unlinkat(root.blobs.get(), key.c_str(), AT_REMOVEDIR) != 0) {
      const sys::UniqueFd dir(
          ::openat(root.blobs.get(), key.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (dir) {
        ATOLL_TRY(sys::flush_to_disk(dir));
        flushed = true;
      }
      break;
    }
    slash = key.rfind('/');
  }
  return flushed ? Result<void>() : sys::flush_to_disk(root.blobs);
}

Error missing() { return make_error(Errc::not_found, "there is no such blob"); }

struct Opened {
  sys::UniqueFd file;
  std::uint64_t size = 0;
};

Result<Opened> open_blob(const Root& root, const std::string& key) {
  Opened out;
  out.file = sys::UniqueFd(
      ::openat(root.blobs.get(), key.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!out.file) {
    if (errno == ENOENT || errno == ENOTDIR) return missing();
    return errno_error("open a blob");
  }
  ATOLL_TRY_ASSIGN(const struct stat st, sys::stat_of(out.file));
  if (!S_ISREG(st.st_mode)) return missing();
  out.size = std::uint64_t(st.st_size);
  return out;
}

class FileReader final : public Reader {
 public:
  FileReader(asio::thread_pool& pool, Opened opened) : pool_(pool), opened_(std::move(opened)) {}

  std::uint64_t size() const override { return opened_.size; }

  net::Task<Result<std::size_t>> read_some(std::span<char> into) override {
    const std::size_t wanted = std::min<std::uint64_t>({into.size(), kPiece, opened_.size - at_});
    if (wanted == 0) co_return std::size_t(0);
    auto reading = offload(pool_, [this, into, wanted] { return read(into.first(wanted)); });
    ATOLL_CO_TRY_ASSIGN(const std::size_t count, co_await std::move(reading));
    at_ += count;
    co_return count;
  }

 private:
  Result<std::size_t> read(std::span<char> into) {
    ssize_t count = 0;
    do {
      count = ::pread(opened_.file.get(), into.data(), into.size(), off_t(at_));
    } while (count < 0 && errno == EINTR);
    if (count < 0) return errno_error("read a blob");
    if (count == 0) return make_error(Errc::data_loss, "a blob is shorter than it was");
    return std::size_t(count);
  }

  asio::thread_pool& pool_;
  Opened opened_;
  std::uint64_t at_ = 0;
};

class DirectoryStore final : public BlobStore {
 public:
  explicit DirectoryStore(RootPtr root) : root_(std::move(root)), pool_(kThreads) {}
  ~DirectoryStore() override { pool_.join(); }

  net::Task<Result<std::uint64_t>> put(std::string key, Source source) override {
    ATOLL_CO_TRY(check_key(key));
    auto opening = offload(pool_, [this] { return Draft::open(root_); });
    ATOLL_CO_TRY_ASSIGN(Draft draft, co_await std::move(opening));
    std::vector<char> buffer;
    for (;;) {
      // Most blobs are tiny: the buffer grows with what comes.
      buffer.resize(draft.size() == 0 && buffer.empty() ? 16 << 10 : kPiece);
      auto reading = fill(source, buffer);
      ATOLL_CO_TRY_ASSIGN(const std::size_t count, co_await std::move(reading));
      if (count > 0) {
        auto writing = offload(
            pool_, [&draft, &buffer, count] { return draft.append({buffer.data(), count}); });
        ATOLL_CO_TRY(co_await std::move(writing));
      }
      if (count < buffer.size()) break;
    }
    auto publishing = offload(pool_, [&draft, &key] { return draft.publish(key); });
    ATOLL_CO_TRY(co_await std::move(publishing));
    co_return draft.size();
  }

  net::Task<Result<std::unique_ptr<Reader>>> get(std::string key) override {
    ATOLL_CO_TRY(check_key(key));
    auto opening = offload(pool_, [this, &key] { return open_blob(*root_, key); });
    ATOLL_CO_TRY_ASSIGN(Opened opened, co_await std::move(opening));
    co_return std::make_unique<FileReader>(pool_, std::move(opened));
  }

  net::Task<Result<Blob>> stat(std::string key) override {
    ATOLL_CO_TRY(check_key(key));
    auto opening = offload(pool_, [this, &key] { return open_blob(*root_, key); });
    ATOLL_CO_TRY_ASSIGN(const Opened opened, co_await std::move(opening));
    co_return Blob{std::move(key), opened.size};
  }

  net::Task<Result<Page>> list(std::string prefix, std::string after, std::size_t limit) override {
    auto listing = offload(pool_, [this, &prefix, &after, limit] {
      return list_files(root_->blobs, prefix, after, limit);
    });
    co_return co_await std::move(listing);
  }

  net::Task<Result<void>> remove(std::string key) override {
    ATOLL_CO_TRY(check_key(key));
    auto removing = offload(pool_, [this, &key] { return remove_blob(*root_, key); });
    co_return co_await std::move(removing);
  }

  net::Task<Result<void>> clean_up(std::function<bool(std::string_view)> /*mine*/) override {
    auto cleaning = offload(pool_, [this]() -> Result<void> {
      ATOLL_TRY_ASSIGN(const auto names, sys::list_dir(root_->temporary));
      for (const std::string& name : names) {
        ATOLL_TRY(sys::remove_tree(root_->temporary, name));
      }
      return {};
    });
    co_return co_await std::move(cleaning);
  }

  bool shared() const override { return false; }
  std::string describe() const override { return "dir:" + root_->path; }

 private:
  const RootPtr root_;
  asio::thread_pool pool_;
};

Result<sys::UniqueFd> open_part(const std::string& root, const char* name) {
  const std::string path = root + "/" + name;
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return errno_error("make " + path);
  sys::UniqueFd dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!dir) return errno_error("open " + path);
  return dir;
}

}  // namespace

Result<std::unique_ptr<BlobStore>> open_directory(const std::string& path) {
  std::error_code ec;
  std::filesystem::create_directories(path, ec);
  if (ec) return errno_error("make the directory of workspaces " + path, ec.value());
  auto root = std::make_shared<Root>();
  root->path = path;
  const std::string lock = path + "/lock";
  root->lock = sys::UniqueFd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!root->lock) return errno_error("open " + lock);
  if (::flock(root->lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return make_error(Errc::failed_precondition,
                      "another server uses the workspaces in " + path +
                          ". FIX: stop it, or share them by --blobs s3://…");
  }
  ATOLL_TRY_ASSIGN(root->temporary, open_part(path, "tmp"));
  ATOLL_TRY_ASSIGN(root->blobs, open_part(path, "blobs"));
  return std::make_unique<DirectoryStore>(std::move(root));
}

}  // namespace atl::blobs
