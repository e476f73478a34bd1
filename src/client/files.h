// Files inside a sandbox, by the agent's filesystem service and its /files. A path means a path
// inside; a relative one is below the user's home.
//
// Every call makes a connection of its own. All that a sandbox answers is untrusted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/inside.h"

namespace atl::client {

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
  std::string symlink_target;    // empty: it is none
};

// Errors of all: not_found; invalid_argument (a path or user that cannot be); permission_denied;
// resource_exhausted (no space); unavailable (the connection broke).
net::Task<Result<Entry>> stat_file(Inside inside, std::string path, std::string user = {});
net::Task<Result<std::vector<Entry>>> list_directory(Inside inside, std::string path,
                                                     std::uint32_t depth = 1,
                                                     std::string user = {});
net::Task<Result<Entry>> make_directory(Inside inside, std::string path, std::string user = {});
net::Task<Result<Entry>> move_file(Inside inside, std::string from, std::string to,
                                   std::string user = {});
net::Task<Result<void>> remove_file(Inside inside, std::string path, std::string user = {});

// Whole, in memory. resource_exhausted: longer than `limit`.
net::Task<Result<std::string>> read_file(Inside inside, std::string path, std::size_t limit,
                                         std::string user = {});
// Parents are made. Answers the path that was written.
net::Task<Result<std::string>> write_file(Inside inside, std::string path, std::string bytes,
                                          std::string user = {});

// Bytes on their way: fills as much as it likes of what it is given; 0 is the end.
using Source = std::function<net::Task<Result<std::size_t>>(std::span<char>)>;

// A file that is being read from a sandbox, piece by piece.
class Download {
 public:
  static net::Task<Result<Download>> open(Inside inside, std::string path, std::string user = {});
  Download(Download&&) noexcept;
  Download& operator=(Download&&) noexcept;
  ~Download();
  std::optional<std::uint64_t> size() const;
  // 0 is the end. data_loss: it broke off.
  net::Task<Result<std::size_t>> read_some(std::span<char> into);

 private:
  explicit Download(net::HttpClient client);
  std::unique_ptr<net::HttpClient> client_;
};

// Writes a file from a source without holding it in memory. `length`, if known, must be exact.
net::Task<Result<void>> upload(Inside inside, std::string path, Source source,
                               std::optional<std::uint64_t> length, std::string user = {});

}  // namespace atl::client
