// Client: the way to sandboxes. Everything else of the library is made with one.
//
// A Client is a handle: copies mean the same one. It has one thread of its own for the network; all
// functions may be called from any thread. What is still under way when the last handle (Clients,
// Sandboxes, Processes) goes away ends with Code::canceled.
//
// Callbacks. Those of a blocking call run in the calling thread, while it blocks; those of an async
// call in a thread of the Client that runs all such callbacks one after the other. They may call
// anything of the library but wait for another async call with callbacks. Watch::stop() and
// Process::disconnect() wait for a callback of theirs that runs: hold no lock that it wants.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "atoll/export.h"
#include "atoll/result.h"

namespace atl::sdk {

class Core;

// An engine of the program's own: `atoll serve` as a child process on a loopback port. Needs root.
struct EmbeddedOptions {
  // The program; empty: ATOLL_PROGRAM, else the one that is installed with this library, else the
  // one in PATH.
  std::string program;
  // Data directory; empty: a new one, removed at the end.
  std::string home;
  // Directory of templates; empty: ATOLL_TEMPLATES, else those of ATOLL_HOME (/var/lib/atoll).
  std::string templates;
  std::string tools;                   // likewise, ATOLL_TOOLS
  std::vector<std::string> arguments;  // more for `atoll serve`
  std::string log_file;                // what it says on stderr; empty: embedded.log in its home
  std::chrono::seconds start_time{60};
};

class ATOLL_API Client {
 public:
  // A server: "http://127.0.0.1:3000", "https://api.example.com". Nothing is connected yet.
  static Result<Client> connect(const std::string& url, const std::string& api_key);
  // The server that E2B_API_URL or E2B_DOMAIN, E2B_API_KEY and E2B_SANDBOX_URL name; E2B's own
  // service if there is only a key.
  static Result<Client> from_environment();
  // E2B's own service: the same API.
  static Result<Client> e2b(const std::string& api_key);
  // Answers when it serves. It ends, with its sandboxes, when the last handle goes away or this
  // process ends, however that happens.
  static Result<Client> embedded(const EmbeddedOptions& options = {});

  // Of the API.
  std::string url() const;

  explicit Client(std::shared_ptr<Core> core);
  const std::shared_ptr<Core>& core() const { return core_; }  // for the library itself

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace atl::sdk
