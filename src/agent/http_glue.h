// Answers of the agent's plain HTTP endpoints, in the form the SDKs parse (wire/sandbox-agent.md
// §10).
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "net/http.h"

namespace atl::agent {

// {"code":<status>,"message":"<text>"} as application/json; charset=utf-8, with nosniff.
net::Task<void> send_plain_error(net::Exchange& exchange, int status, std::string message,
                                 net::Headers extra = {});
// `value` as application/json.
net::Task<void> send_json(net::Exchange& exchange, int status, json::value value,
                          net::Headers extra = {});
// An answer without a body.
net::Task<void> send_empty(net::Exchange& exchange, int status, net::Headers extra = {});

std::string plain_error_body(int status, std::string_view message);

}  // namespace atl::agent
