// Namespaces by descriptor: making, entering for a while, pinning by a bind mount.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

// The caller's own: "net", "mnt", ...
Result<UniqueFd> own_namespace(const std::string& name);

// In another namespace (CLONE_NEWNET, CLONE_NEWNS) until destruction. Preconditions: the process
// has one thread. For mount namespaces the working directory becomes "/".
class InNamespace {
 public:
  static Result<InNamespace> enter(const UniqueFd& target, int type);
  InNamespace(InNamespace&& other) noexcept = default;
  InNamespace& operator=(InNamespace&&) = delete;
  ~InNamespace();  // a process that cannot go back ends

 private:
  InNamespace(UniqueFd home, int type) : home_(std::move(home)), type_(type) {}
  UniqueFd home_;
  int type_;
};

// A network namespace that nobody is in; lives as long as the descriptor, a pin or a socket does.
Result<UniqueFd> new_network_namespace();
// Ids `inside` ... of a user namespace are those from `outside` on of the caller's.
struct IdMap {
  uid_t inside = 0;
  uid_t outside = 0;
  std::uint32_t count = 0;
};
// A user namespace that nobody is in, for idmapped mounts; belongs to the host's user `owner`.
// Preconditions: the process has one thread.
Result<UniqueFd> new_user_namespace(const IdMap& map, uid_t owner);
// Keeps a namespace alive under a name in the caller's mount namespace. The file is made if need
// be.
Result<void> pin_namespace(const UniqueFd& target, const std::string& path);
// The namespace pinned there; not_found if there is no pin.
Result<UniqueFd> open_pinned(const std::string& path);
// Removes pin and file; fine if neither exists.
Result<void> unpin_namespace(const std::string& path);

}  // namespace atl::sys
