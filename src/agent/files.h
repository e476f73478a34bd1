// Inside of the /files endpoints: what download, upload and compose share (wire/sandbox-agent.md
// §10.4 to §10.6).
//
// Every step returns a Result; `send_failure` turns its Error into the status that clients know.
// Bodies are streamed both ways through one buffer per request.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/file_io.h"
#include "agent/state.h"
#include "agent/users.h"
#include "net/http.h"

namespace atl::agent {

inline constexpr std::size_t kFileBufferBytes = 256 * 1024;

// 400, 401, 404, 507 (disk or quota full), else 500.
int rest_status(const Error& error);
// Answers with rest_status, or with `status` if one is given. Text that is not UTF-8 is made so.
net::Task<void> send_failure(net::Exchange& exchange, Error error,
                             std::optional<int> status = std::nullopt);
// Swallows what the client still sends, so that it gets to read the answer; gives up after a while.
net::Task<void> discard_body(net::BodyReader& body);

// The user of a plain request: that name, else the default user.
// Errors: unauthenticated "error looking up user '<name>': user: unknown user <name>".
Result<User> rest_user(const std::optional<std::string>& name, const AgentState& state);

// The X-Metadata-* headers. Errors: invalid_argument "invalid metadata: ...".
Result<Metadata> metadata_from_headers(const net::Headers& headers);

// A file being written for a user: parents made, created or emptied, owned by the user.
class UploadedFile {
 public:
  // Errors: invalid_argument "path is a directory: ..."; else as the disk says.
  static Result<UploadedFile> open(const std::string& path, const User& user);
  Result<void> write(std::string_view bytes);
  // Sets the metadata; returns what the filesystem kept of it.
  Result<Metadata> finish(const Metadata& metadata);

 private:
  explicit UploadedFile(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
  std::uint64_t written_ = 0;
};

// Each answers its exchange.
net::Task<void> download_file(net::Exchange& exchange, const std::string& path);
net::Task<void> upload_files(net::Exchange& exchange, const AgentState& state, const User& user,
                             const std::optional<std::string>& path);
net::Task<void> compose_files(net::Exchange& exchange, const AgentState& state);

}  // namespace atl::agent
