// WatchStream: changes in a directory inside, as they come.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/inside.h"

namespace atl::client {

struct FileEvent {
  enum class Type : std::uint8_t { create, write, remove, rename, chmod, other } type = Type::other;
  std::string name;  // below the directory
};

class WatchStream {
 public:
  // Answers when changes are seen. not_found; invalid_argument: no directory.
  static net::Task<Result<WatchStream>> open(Inside inside, std::string path, bool recursive,
                                             std::string user = {});
  WatchStream(WatchStream&&) noexcept;
  WatchStream& operator=(WatchStream&&) noexcept;
  ~WatchStream();

  net::Task<Result<FileEvent>> next();
  // Ends a `next` that waits, which then fails. On the stream's executor.
  void close();

 private:
  struct Impl;
  explicit WatchStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace atl::client
