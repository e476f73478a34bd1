#include "egress/spawn.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/co_spawn.hpp>

#include "base/log.h"

namespace atl::egress {

void spawn(const net::asio::any_io_executor& executor, std::string_view name,
           net::Task<void> body) {
  net::asio::co_spawn(executor, std::move(body), [name](std::exception_ptr failure) {
    if (!failure) return;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& e) {
      log::error("egress task failed", {{"task", name}, {"error", e.what()}});
    } catch (...) {
      log::error("egress task failed", {{"task", name}});
    }
  });
}

}  // namespace atl::egress
