// Errors as the control plane shows them: {"code": <HTTP status>, "message": <text>[, "error_code":
// <text>]}. api/errors.md tells clients about them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "net/http.h"

namespace atl::api {

// One row per error code: what a client of the control plane and one of the agent's Connect
// protocol see for it.
struct ErrorRow {
  Errc code;
  int status;  // of the control plane; only IANA ones: the Python client fails on others
  std::string_view connect;  // Connect's name
  std::string_view advice;   // what to do next, where the message alone does not say it
};
std::span<const ErrorRow> error_table();
const ErrorRow& error_row(Errc code);

struct ApiError {
  int status = 500;
  std::string message;
  std::string error_code = {};  // machine-readable, only for failed starts; may be empty
  // The failure passes by itself: try again after so long.
  std::optional<std::chrono::seconds> retry_after = std::nullopt;
};

// What was asked, where that changes how a failure is told.
enum class Operation { other, start };

// Messages of internal errors are not for clients: they are logged under a trace id, which the
// answer names.
ApiError to_api_error(const Error& error, Operation operation = Operation::other);

json::object error_json(const ApiError& error);
std::string encode(const ApiError& error);
// Content-Type, and Retry-After with its companions where waiting helps.
net::Headers headers_of(const ApiError& error);
// The same for answers that net::HttpServer makes by itself.
std::string error_body(int status, std::string_view message);

}  // namespace atl::api
