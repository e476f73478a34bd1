// Child: the embedded engine, `atoll serve` as a child of this process.
//
// Theory of operation. Its stdin is a pipe whose other end is ours: when that closes, because the
// Client went away or because this process died in whatever way, the server ends and kills its
// sandboxes. (PR_SET_PDEATHSIG would not do: it follows the thread that forked.) Its stdout tells
// where it serves and ends then; its stderr goes to a file. It leads a session of its own, so that
// Ctrl-C at a terminal reaches the program and not its engine first.
//
// A server that crashed leaves its sandboxes to the next one in its home. If the home is ours there
// is no next one, so it is started: with a stdin that has ended, it finds them and ends with them.
#pragma once

#include <atoll/client.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace atl::sdk {

class Child {
 public:
  static atl::Result<std::unique_ptr<Child>> start(const EmbeddedOptions& options);
  // Ends it and waits for that, at most two minutes; removes a home that was made for it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& url() const { return url_; }
  const std::string& key() const { return key_; }

 private:
  Child() = default;
  atl::Result<void> spawn(int& out);
  atl::Result<void> read_exports(int out, std::chrono::seconds limit);
  std::string last_words() const;
  // False: not by itself, or not well.
  bool end();
  void end_leftovers();

  std::vector<std::string> arguments_;  // the program first
  std::vector<std::string> variables_;
  pid_t pid_ = -1;
  int lifeline_ = -1;
  std::string home_;
  bool own_home_ = false;
  std::string log_;
  std::string url_;
  std::string key_;
};

}  // namespace atl::sdk
