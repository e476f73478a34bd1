// Answers of the interpreter's HTTP API: plain texts, JSON, and what a page of another origin
// needs.
#pragma once

#include <string>
#include <string_view>

#include "net/http.h"

namespace atl::agent::interpreter {

// Adds what lets a page read the answer, if a page asked.
net::Headers with_origin(const net::Exchange& exchange, net::Headers headers);

net::Task<void> send_text(net::Exchange& exchange, int status, std::string text);
net::Task<void> send_json_text(net::Exchange& exchange, int status, std::string json);
// {"detail":"..."}; `allow`, if any, is an Allow header.
net::Task<void> send_detail(net::Exchange& exchange, int status, std::string_view detail,
                            std::string allow = {});

bool is_interpreter_preflight(const net::RequestHead& request);
net::Task<void> answer_preflight(net::Exchange& exchange);

}  // namespace atl::agent::interpreter
