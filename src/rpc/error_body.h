// Errors as the protocol writes them, both directions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::rpc {

// {"code":"not_found","message":"..."}
std::string error_body(const Error& error);
// The payload of the last envelope: {} or {"error":{...}}.
std::string end_stream_body(const Result<void>& outcome);

// What a failed unary answer means: its JSON body if it is one of ours, else the HTTP status.
Error parse_error_body(int status, std::string_view body);
// The outcome that a last envelope tells.
Result<void> parse_end_stream(std::string_view payload);

std::optional<Errc> errc_from_connect_name(std::string_view name);

}  // namespace atl::rpc
