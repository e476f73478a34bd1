// Errors as the control plane shows them: {"code": <HTTP status>, "message": <text>[, "error_code":
// <text>]}.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::api {

struct ApiError {
  int status = 500;
  std::string message;
  std::string error_code;  // machine-readable, only for failed starts; may be empty
};

// What was asked, where that changes how a failure is told.
enum class Operation { other, start };

// The one table from Errc to the control plane. Messages of internal errors are not for clients:
// they are logged under a trace id, which the answer names.
ApiError to_api_error(const Error& error, Operation operation = Operation::other);

std::string encode(const ApiError& error);
// The same for answers that net::HttpServer makes by itself.
std::string error_body(int status, std::string_view message);

}  // namespace atl::api
