// Sandbox: one sandbox, and everything in it.
//
// A handle: copies mean the same sandbox. It goes on when the handles are gone, until it is killed
// or its time is over. The functions with _async do the same and return at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/client.h"
#include "atoll/code.h"
#include "atoll/export.h"
#include "atoll/files.h"
#include "atoll/process.h"
#include "atoll/result.h"

namespace atl::sdk {

struct SandboxOptions {
  std::string template_id;            // empty: the one with a code interpreter
  std::chrono::seconds timeout{300};  // then it is killed, or paused
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::string> envs;
  std::optional<bool> allow_internet;  // nullopt: as the server has it
  bool pause_on_timeout = false;
  bool auto_resume = false;  // traffic to it wakes it
};

struct SandboxInfo {
  std::string id;
  std::string template_id;
  std::string alias;
  std::string state;       // "running" or "paused"
  std::string started_at;  // RFC 3339
  std::string end_at;
  std::int64_t cpu_count = 0;
  std::int64_t memory_mb = 0;
  std::int64_t disk_mb = 0;
  std::map<std::string, std::string> metadata;
};

struct ListOptions {
  std::map<std::string, std::string> metadata;  // only those that have it
  std::vector<std::string> states;              // empty: running and paused
  std::size_t limit = 1000;
};

class ATOLL_API Sandbox {
 public:
  static Result<Sandbox> create(const Client& client, SandboxOptions options = {});
  static std::future<Result<Sandbox>> create_async(const Client& client,
                                                   SandboxOptions options = {});
  // One that exists. A paused one is resumed; the end of a running one is at least `timeout` away.
  static Result<Sandbox> connect(const Client& client, const std::string& id,
                                 std::chrono::seconds timeout = std::chrono::seconds(300));
  static std::future<Result<Sandbox>> connect_async(
      const Client& client, const std::string& id,
      std::chrono::seconds timeout = std::chrono::seconds(300));
  static Result<std::vector<SandboxInfo>> list(const Client& client, ListOptions options = {});
  static Result<void> kill(const Client& client, const std::string& id);
  static Result<void> delete_snapshot(const Client& client, const std::string& snapshot_id);

  const std::string& id() const;
  Result<SandboxInfo> info() const;
  // False: it was gone.
  Result<bool> kill();
  std::future<Result<bool>> kill_async();
  // Its memory is kept; nothing runs until it is resumed.
  Result<void> pause();
  std::future<Result<void>> pause_async();
  Result<void> resume(std::chrono::seconds timeout = std::chrono::seconds(300));
  std::future<Result<void>> resume_async(std::chrono::seconds timeout = std::chrono::seconds(300));
  Result<void> set_timeout(std::chrono::seconds timeout);
  // Copies of it as it is now, running processes included; one answer for each.
  Result<std::vector<Result<Sandbox>>> fork(
      std::uint32_t count = 1, std::chrono::seconds timeout = std::chrono::seconds(300));
  std::future<Result<std::vector<Result<Sandbox>>>> fork_async(
      std::uint32_t count = 1, std::chrono::seconds timeout = std::chrono::seconds(300));
  // The id is a template for create. `name` may be empty.
  Result<std::string> snapshot(std::string name = {});
  std::future<Result<std::string>> snapshot_async(std::string name = {});
  // Host name and path for HTTP to a port inside, and the headers that such a request needs.
  struct PortAddress {
    std::string url;
    std::map<std::string, std::string> headers;
  };
  PortAddress port(std::uint16_t port) const;

  // ---- code ----
  // A failure of the code is no error: look at Execution::error. deadline_exceeded: it was
  // interrupted at its timeout.
  Result<Execution> run_code(std::string code, CodeOptions options = {});
  std::future<Result<Execution>> run_code_async(std::string code, CodeOptions options = {});
  Result<CodeContext> create_context(std::string language, std::string directory = {});
  Result<std::vector<CodeContext>> list_contexts();
  Result<void> restart_context(const std::string& id);
  Result<void> remove_context(const std::string& id);

  Commands commands() const { return Commands(state_); }
  Files files() const { return Files(state_); }
  Pty pty() const { return Pty(state_); }

  explicit Sandbox(std::shared_ptr<SandboxState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<SandboxState> state_;
};

}  // namespace atl::sdk
