// Loop devices: a file as a block device that goes away with its last user.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

class LoopDevice {
 public:
  // Binds `file` to a free device with autoclear: once this object and every mount of it are gone,
  // so is the binding.
  enum class Access { read_write, read_only };
  static Result<LoopDevice> attach(const UniqueFd& file, Access access = Access::read_write);
  // The device that `file` is bound to, whoever did that; it stays bound at least as long as this
  // object. nullopt: there is none.
  static Result<std::optional<LoopDevice>> find(const UniqueFd& file);
  // A path for `source=` of a mount.
  const std::string& path() const { return path_; }

 private:
  LoopDevice(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;
};

}  // namespace atl::sys
