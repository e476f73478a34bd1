// Watcher: one inotify instance over a directory, or over a whole tree, giving events relative to
// it (wire/sandbox-agent.md §9).
//
// Theory of operation. The kernel watches inodes, so a tree has one watch per directory and a table
// from watch to relative path. When a directory appears, its watch is added before its CREATE is
// handed out, and then the directory is read: what was made in it before the watch stood raised no
// event, and is reported as if it had. What raised one is in the queue by then; so the queue is
// read first, and names that have a CREATE in it are left to that record. A renamed directory keeps
// its watches: a MOVED_FROM and MOVED_TO with the same cookie change the table. A directory that
// left the tree loses them.
//
// Used from the agent's one thread. `drain` never waits. Errors are final: queue overflow and a
// full buffer end the watch.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/file_io.h"
#include "agent/filesystem.pb.h"
#include "net/task.h"

namespace atl::agent {

enum class WatchDepth { directory, tree };
enum class NetworkMounts { refuse, allow };

struct WatchEvent {
  std::string name;  // relative to the watched directory; "." for itself
  filesystem::EventType type = filesystem::EVENT_TYPE_UNSPECIFIED;
  bool operator==(const WatchEvent&) const = default;
};

class Watcher {
 public:
  // Undelivered events of a watcher that nobody polls; past it the watcher fails.
  static constexpr std::size_t kMaxBuffered = 100'000;

  // Armed when it returns. Errors: not_found, invalid_argument (not a directory, network
  // filesystem), internal.
  static net::Task<Result<std::unique_ptr<Watcher>>> create(std::string path, WatchDepth depth,
                                                            NetworkMounts mounts);

  // Reads everything the kernel has for us into the buffer.
  Result<void> drain();
  // Takes the buffered events.
  std::vector<WatchEvent> take();
  bool has_events() const { return !events_.empty(); }

  // The directory as given.
  const std::string& path() const { return path_; }
  std::string path_of(const WatchEvent& event) const;
  int fd() const { return inotify_.get(); }
  std::size_t watch_count() const { return directories_.size(); }

 private:
  struct Record {
    int wd = -1;
    std::uint32_t mask = 0;
    std::uint32_t cookie = 0;
    std::string name;
  };
  struct Departed {  // a MOVED_FROM of a directory whose MOVED_TO has not been seen
    std::uint32_t cookie = 0;
    std::string path;
  };

  Watcher(Fd inotify, std::string path, WatchDepth depth)
      : inotify_(std::move(inotify)), path_(std::move(path)), depth_(depth) {}

  net::Task<Result<void>> add_existing_tree();
  Result<int> add_watch(const std::string& relative);
  Result<void> read_queue();
  void process(const Record& record);
  void directory_appeared(const std::string& relative, bool moved);
  void report_contents(const std::string& relative, int wd);
  void settle_departed(const Record& record);
  void forget_tree(const std::string& relative);
  void rename_tree(const std::string& from, const std::string& to);
  void emit(std::string name, filesystem::EventType type);
  void emit_mask(const std::string& name, std::uint32_t mask);
  std::string absolute(const std::string& relative) const;

  Fd inotify_;
  std::string path_;
  WatchDepth depth_;
  std::unordered_map<int, std::string> directories_;  // relative, "" = the watched one
  std::deque<Record> queue_;
  std::deque<WatchEvent> events_;
  std::optional<Departed> departed_;
  std::optional<Error> failure_;
};

}  // namespace atl::agent
