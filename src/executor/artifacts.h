// Artifacts: files that the code left directly in `artifacts/`, which go with the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/files.h"
#include "net/task.h"

namespace atl::executor {

inline constexpr std::size_t kMaxArtifacts = 10;
inline constexpr std::uint64_t kMaxArtifactBytes = 10 << 20;

struct Artifact {
  std::string name;
  std::string_view mime_type;  // a literal
  std::uint64_t size = 0;
  std::string content_b64;
};

// By the extension, in either case. Empty: not a kind that is handed over.
std::string_view mime_type_of(std::string_view name);
// No path parts, no leading dot, nothing that is not text.
bool is_artifact_name(std::string_view name);
// Of the entries of `artifacts/`: files that may be handed over, by name, the first
// kMaxArtifacts of them. What is left out is left out silently, as the client expects.
std::vector<client::Entry> choose_artifacts(std::vector<client::Entry> entries);

// Reads them. A file that went away or grew meanwhile is left out; other errors end it.
net::Task<Result<std::vector<Artifact>>> collect_artifacts(client::Inside inside,
                                                           std::string directory);

}  // namespace atl::executor
