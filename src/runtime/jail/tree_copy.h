// TreeCopy: files of several trees copied into one, each with everything that belongs to it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::jail {

class TreeCopy {
 public:
  // Directories that are open for reading; all outlive this object.
  TreeCopy(const std::vector<sys::UniqueFd>& from, const sys::UniqueFd& to)
      : from_(from), to_(to) {}

  // Makes `target` (a path below the new tree, whose directory exists) what `source` of tree `tree`
  // is, with content, owner, mode, times and attributes. Names of one file stay names of one file.
  // Not for directories.
  Result<void> file(std::size_t tree, const std::string& source, const std::string& target);
  // Owner, mode, times and attributes of a directory that was made; after its last entry.
  Result<void> directory(std::size_t tree, const std::string& source, const std::string& target);

 private:
  Result<void> create(const sys::UniqueFd& original, const std::string& source, std::size_t tree,
                      const std::string& target);
  Result<void> attributes(const sys::UniqueFd& original, const std::string& target);

  const std::vector<sys::UniqueFd>& from_;
  const sys::UniqueFd& to_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::string> linked_;  // tree, inode -> path
};

// Of a path: what it is in, and its last part.
std::pair<std::string, std::string> split(const std::string& path);

}  // namespace atl::jail
