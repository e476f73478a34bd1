#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/result.h"

namespace atl {
namespace {

struct Row {
  Errc code;
  std::string_view name;
  int status;
};

// wire/sandbox-agent.md §4.1
constexpr Row kTable[] = {
    {Errc::canceled, "canceled", 499},
    {Errc::unknown, "unknown", 500},
    {Errc::invalid_argument, "invalid_argument", 400},
    {Errc::deadline_exceeded, "deadline_exceeded", 504},
    {Errc::not_found, "not_found", 404},
    {Errc::already_exists, "already_exists", 409},
    {Errc::permission_denied, "permission_denied", 403},
    {Errc::resource_exhausted, "resource_exhausted", 429},
    {Errc::failed_precondition, "failed_precondition", 400},
    {Errc::aborted, "aborted", 409},
    {Errc::out_of_range, "out_of_range", 400},
    {Errc::unimplemented, "unimplemented", 501},
    {Errc::internal, "internal", 500},
    {Errc::unavailable, "unavailable", 503},
    {Errc::data_loss, "data_loss", 500},
    {Errc::unauthenticated, "unauthenticated", 401},
};

const Row& row(Errc code) {
  for (const Row& r : kTable) {
    if (r.code == code) return r;
  }
  return kTable[1];
}

}  // namespace

std::string_view connect_name(Errc code) { return row(code).name; }
int http_status(Errc code) { return row(code).status; }

Errc errc_from_errno(int err) {
  switch (err) {
    case ENOENT:
    case ESRCH:
      return Errc::not_found;
    case EEXIST:
      return Errc::already_exists;
    case EACCES:
    case EPERM:
      return Errc::permission_denied;
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
      return Errc::invalid_argument;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
      return Errc::resource_exhausted;
    case ETIMEDOUT:
      return Errc::deadline_exceeded;
    case ECANCELED:
      return Errc::canceled;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return Errc::unavailable;
    case ENOSYS:
    case EOPNOTSUPP:
      return Errc::unimplemented;
    default:
      return Errc::internal;
  }
}

Error errno_error(std::string_view what, int err) {
  return Error{errc_from_errno(err), err, std::string(what) + ": " + std::strerror(err)};
}
Error errno_error(std::string_view what) { return errno_error(what, errno); }

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "atoll: bug at %s:%d: %s does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace atl
