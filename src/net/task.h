// Task<T> is the project's coroutine type: an Asio awaitable. Errors are values (Result), never
// exceptions.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "base/result.h"

namespace atl::net {

namespace asio = boost::asio;

template <class T>
using Task = asio::awaitable<T>;

// An Asio error as ours; `what` says what was being done.
Error to_error(const boost::system::error_code& ec, std::string_view what);

}  // namespace atl::net
