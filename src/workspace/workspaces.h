// Workspaces: files that outlive sandboxes. A workspace belongs to a team and has a name (a user, a
// project); in it are files by path, each with its versions.
//
// Content goes through in pieces, never whole in memory. A file that is being written shows its old
// version until the new one is complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/files.h"
#include "client/inside.h"
#include "store/timestamp.h"

namespace atl::workspace {

struct File {
  std::string path;  // absolute, normalised: "/report/a.csv"
  std::uint64_t size = 0;
  std::string version;  // newest first when they are listed
  std::string sha256;
  Timestamp modified_at{};
};

// A file that is being read.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual const File& file() const = 0;
  // 0 is the end.
  virtual net::Task<Result<std::size_t>> read_some(std::span<char> into) = 0;
};

class Workspaces {
 public:
  virtual ~Workspaces() = default;
  // The workspace is made by its first write. invalid_argument: name or path; resource_exhausted:
  // its quota.
  virtual net::Task<Result<File>> write(std::string team, std::string workspace, std::string path,
                                        client::Source source,
                                        std::optional<std::uint64_t> length) = 0;
  // `version` empty: the newest. not_found.
  virtual net::Task<Result<std::unique_ptr<Reader>>> read(std::string team, std::string workspace,
                                                          std::string path,
                                                          std::string version = {}) = 0;
  virtual net::Task<Result<std::vector<File>>> list(std::string team, std::string workspace,
                                                    std::string prefix = "/") = 0;
  virtual net::Task<Result<void>> remove(std::string team, std::string workspace,
                                         std::string path) = 0;

  // A file or a folder, from a sandbox and into one. What was copied.
  virtual net::Task<Result<std::vector<File>>> save(std::string team, std::string workspace,
                                                    client::Inside from, std::string sandbox_path,
                                                    std::string workspace_path) = 0;
  virtual net::Task<Result<std::vector<File>>> load(std::string team, std::string workspace,
                                                    std::string workspace_path, client::Inside to,
                                                    std::string sandbox_path) = 0;
};

}  // namespace atl::workspace
