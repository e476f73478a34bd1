// Catalog: which templates a home has, and which one a reference means.
//
// Thread-safe. Every lookup costs a stat of the templates directory; the manifests are read again
// when it changed (the builder renames complete templates into place, which changes the directory's
// mtime).
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "templates/manifest.h"

namespace atl::templates {

class Catalog {
 public:
  explicit Catalog(std::filesystem::path dir) : dir_(std::move(dir)) {}

  // invalid_argument: bad grammar. not_found: "template 'x' not found", "tag 't' does not exist for
  // template 'x'".
  Result<Template> find(std::string_view reference);
  // All, in the order of their ids.
  std::vector<Template> list();

 private:
  using Snapshot = std::shared_ptr<const std::vector<Template>>;
  Snapshot current();

  const std::filesystem::path dir_;
  std::mutex mutex_;  // guards the two below
  std::filesystem::file_time_type read_at_mtime_{};
  Snapshot templates_;
};

}  // namespace atl::templates
