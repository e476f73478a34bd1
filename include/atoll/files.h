// Files of a sandbox. A path means a path inside; a relative one is below the user's home.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/export.h"
#include "atoll/result.h"

namespace atl::sdk {

struct SandboxState;

enum class EntryType : std::uint8_t { file, directory, symlink, other };

struct Entry {
  std::string name;
  std::string path;
  EntryType type = EntryType::other;
  std::uint64_t size = 0;
  std::uint32_t mode = 0;
  std::string permissions;  // "-rw-r--r--"
  std::string owner;
  std::string group;
  std::int64_t modified_ms = 0;  // since the epoch
  std::string symlink_target;
};

struct FileEvent {
  enum class Type : std::uint8_t { create, write, remove, rename, chmod, other } type = Type::other;
  std::string name;  // below the directory that is watched
};

// A watch. Ends when the last copy goes away, or by stop(). No callback begins after either.
class ATOLL_API Watch {
 public:
  // Waits for a callback that runs, unless it is called by that one.
  void stop();
  struct State;
  explicit Watch(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// What `sandbox.files()` gives.
class ATOLL_API Files {
 public:
  static constexpr std::size_t kMaxRead = 256 << 20;

  // Whole. resource_exhausted: longer than `limit`; use read_to for those.
  Result<std::string> read(std::string path, std::size_t limit = kMaxRead);
  std::future<Result<std::string>> read_async(std::string path, std::size_t limit = kMaxRead);
  // Parents are made. Answers the path that was written.
  Result<std::string> write(std::string path, std::string bytes);
  std::future<Result<std::string>> write_async(std::string path, std::string bytes);

  // Piece by piece, without holding the file in memory; the callbacks run in this thread. A sink
  // that answers false ends it with canceled; a source fills what it is given, 0 is the end, an
  // empty optional an error.
  Result<std::uint64_t> read_to(std::string path, std::function<bool(std::string_view)> sink);
  Result<std::uint64_t> write_from(
      std::string path, std::function<std::optional<std::size_t>(std::span<char>)> source,
      std::optional<std::uint64_t> length = std::nullopt);
  // The same with files of this machine.
  Result<std::uint64_t> download(std::string path, const std::string& local_path);
  Result<std::uint64_t> upload(const std::string& local_path, std::string path);

  Result<std::vector<Entry>> list(std::string path, std::uint32_t depth = 1);
  Result<Entry> stat(std::string path);
  Result<bool> exists(std::string path);
  // False: it was there.
  Result<bool> make_dir(std::string path);
  Result<Entry> rename(std::string from, std::string to);
  // With all that is in it. No error if there is none.
  Result<void> remove(std::string path);
  // Changes in a directory, as they come; see client.h for where `on_event` runs. `on_end` is told
  // why it ended by itself.
  struct WatchOptions {
    bool recursive = false;
    std::function<void(const Error&)> on_end;
  };
  Result<Watch> watch(std::string path, std::function<void(const FileEvent&)> on_event,
                      WatchOptions options);
  Result<Watch> watch(std::string path, std::function<void(const FileEvent&)> on_event) {
    return watch(std::move(path), std::move(on_event), WatchOptions());
  }
  // The same as another user of the sandbox.
  Files as(std::string user) const { return Files(sandbox_, std::move(user)); }

  explicit Files(std::shared_ptr<SandboxState> sandbox, std::string user = {})
      : sandbox_(std::move(sandbox)), user_(std::move(user)) {}

 private:
  std::shared_ptr<SandboxState> sandbox_;
  std::string user_;
};

}  // namespace atl::sdk
