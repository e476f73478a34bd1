#include "engine/commands.h"

#include <cerrno>

namespace atl::engine {

Error transient_refusal(std::string message) {
  return Error{Errc::resource_exhausted, EAGAIN, std::move(message)};
}

bool is_transient(const Error& error) {
  return error.code == Errc::resource_exhausted && error.sys_errno == EAGAIN;
}

}  // namespace atl::engine
