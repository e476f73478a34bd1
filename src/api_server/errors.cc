#include "api_server/errors.h"

#include "base/ids.h"
#include "base/json.h"
#include "base/log.h"

namespace atl::api {
namespace {

// Only IANA statuses: the Python client fails on others.
int status_of(Errc code) {
  switch (code) {
    case Errc::invalid_argument:
    case Errc::out_of_range:
      return 400;
    case Errc::unauthenticated:
      return 401;
    case Errc::permission_denied:
      return 403;
    case Errc::not_found:
      return 404;
    case Errc::already_exists:
    case Errc::failed_precondition:
    case Errc::aborted:
      return 409;
    case Errc::resource_exhausted:
      return 429;
    case Errc::unimplemented:
      return 501;
    case Errc::unavailable:
      return 503;
    case Errc::deadline_exceeded:
      return 504;
    case Errc::canceled:
    case Errc::unknown:
    case Errc::internal:
    case Errc::data_loss:
      return 500;
  }
  return 500;
}

std::string start_error_code(int status) {
  switch (status) {
    case 500:
      return "sandbox_create_failed";
    case 503:
      return "sandbox_capacity_unavailable";
    case 504:
      return "sandbox_placement_timeout";
    default:
      return {};
  }
}

}  // namespace

ApiError to_api_error(const Error& error, Operation operation) {
  ApiError out;
  out.status = status_of(error.code);
  out.message = error.message;
  if (out.status == 500) {
    const std::string trace = random_hex(8);
    log::error("a request failed", {{"trace", trace}, {"error", error.message}});
    out.message =
        operation == Operation::start
            ? "The sandbox could not be created. The server's log tells why under trace " + trace +
                  "."
            : "Internal error. The server's log tells why under trace " + trace + ".";
  }
  if (operation == Operation::start) out.error_code = start_error_code(out.status);
  return out;
}

std::string encode(const ApiError& error) {
  json::object body;
  body["code"] = error.status;
  body["message"] = error.message;
  if (!error.error_code.empty()) body["error_code"] = error.error_code;
  return json::serialize(body);
}

std::string error_body(int status, std::string_view message) {
  return encode(ApiError{status, std::string(message), {}});
}

}  // namespace atl::api
