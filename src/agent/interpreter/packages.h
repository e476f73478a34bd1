// PackageStamps: have the Python packages of the sandbox changed since it booted?
//
// Installing, upgrading and removing change the times of the directory that holds the packages. The
// nursery has the packages of the template loaded; after a change, kernels are started cold.
#pragma once

#include <array>
#include <map>
#include <string>

namespace atl::agent::interpreter {

class PackageStamps {
 public:
  // Directories below `root` (the sandbox's is "/") and below `home`. What is there now is what
  // later looks compare with.
  PackageStamps(std::string root, std::string home);

  bool changed() const;

 private:
  using Stamp = std::array<long long, 4>;
  using Stamps = std::map<std::string, Stamp>;
  Stamps look() const;

  std::string root_;
  std::string home_;
  Stamps at_boot_;
};

}  // namespace atl::agent::interpreter
