// Starts a coroutine that nobody waits for; an exception that gets out of it is logged.
#pragma once

#include <string_view>

#include "net/task.h"

namespace atl::egress {

// `name` is a literal.
void spawn(const net::asio::any_io_executor& executor, std::string_view name, net::Task<void> body);

}  // namespace atl::egress
