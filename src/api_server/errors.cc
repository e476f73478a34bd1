#include "api_server/errors.h"

#include <cerrno>

#include "base/ids.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/commands.h"

namespace atl::api {
namespace {

constexpr ErrorRow kTable[] = {
    {Errc::invalid_argument, 400, "invalid_argument", {}},
    {Errc::out_of_range, 400, "out_of_range", {}},
    {Errc::unauthenticated, 401, "unauthenticated", {}},
    {Errc::permission_denied, 403, "permission_denied", {}},
    {Errc::not_found, 404, "not_found", {}},
    {Errc::already_exists, 409, "already_exists", {}},
    {Errc::failed_precondition, 409, "failed_precondition", {}},
    {Errc::aborted, 409, "aborted", "Try again."},
    {Errc::resource_exhausted, 429, "resource_exhausted", {}},
    {Errc::unimplemented, 501, "unimplemented", {}},
    {Errc::unavailable, 503, "unavailable", "Try again in a moment."},
    {Errc::deadline_exceeded, 504, "deadline_exceeded", "Try again in a moment."},
    {Errc::internal, 500, "internal", {}},
    {Errc::unknown, 500, "unknown", {}},
    {Errc::data_loss, 500, "data_loss", {}},
    {Errc::canceled, 500, "canceled", {}},
};

constexpr const ErrorRow& kInternal = kTable[12];
static_assert(kInternal.code == Errc::internal);

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

std::string with_advice(std::string message, std::string_view advice) {
  if (advice.empty() || message.find(advice) != std::string::npos) return message;
  if (!message.empty() && message.back() != '.') message += '.';
  message += ' ';
  message += advice;
  return message;
}

}  // namespace

std::span<const ErrorRow> error_table() { return kTable; }

const ErrorRow& error_row(Errc code) {
  for (const ErrorRow& row : kTable) {
    if (row.code == code) return row;
  }
  return kInternal;
}

ApiError to_api_error(const Error& error, Operation operation) {
  const ErrorRow& row = error_row(error.code);
  ApiError out;
  out.status = row.status;
  if (error.sys_errno == ENOSPC && error.code == Errc::resource_exhausted) out.status = 507;
  out.message = with_advice(error.message, row.advice);
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
  if (out.status == 503 || engine::is_transient(error)) out.retry_after = engine::kRetryAfter;
  return out;
}

json::object error_json(const ApiError& error) {
  json::object body;
  body["code"] = error.status;
  body["message"] = error.message;
  if (!error.error_code.empty()) body["error_code"] = error.error_code;
  return body;
}

std::string encode(const ApiError& error) { return json::serialize(error_json(error)); }

net::Headers headers_of(const ApiError& error) {
  net::Headers headers{{"Content-Type", "application/json"}};
  if (error.retry_after) {
    const std::string seconds = std::to_string(error.retry_after->count());
    headers.add("Retry-After", seconds);
    if (error.status == 429) {
      headers.add("RateLimit-Remaining", "0");
      headers.add("RateLimit-Reset", seconds);
    }
  }
  return headers;
}

std::string error_body(int status, std::string_view message) {
  return encode(ApiError{status, std::string(message)});
}

}  // namespace atl::api
