#include "agent/interpreter/relay.h"

#include "agent/interpreter/answers.h"
#include "net/last_write.h"
#include "rpc/call_race.h"

namespace atl::agent::interpreter {
namespace {

net::Task<Result<void>> relay(net::ResponseWriter& response, std::shared_ptr<Run> run) {
  for (;;) {
    auto waiting = run->next(kKeepalive);
    const Run::Batch batch = co_await std::move(waiting);
    if (batch.last) {
      // The last lines and the end of the body in one piece: a client may end the sandbox as soon
      // as it has read the first of them.
      auto finishing = net::finish_with(response, batch.lines);
      co_return co_await std::move(finishing);
    }
    auto writing =
        response.write(batch.lines.empty() ? kKeepaliveLine : std::string_view(batch.lines));
    ATOLL_CO_TRY(co_await std::move(writing));
  }
}

}  // namespace

net::Task<Result<void>> wait_for_kernel(std::shared_ptr<Context> context) {
  auto bringing = context->ready_kernel();
  auto kernel = co_await std::move(bringing);
  if (!kernel.ok()) co_return std::move(kernel).error();
  co_return Result<void>();
}

net::Task<bool> while_connected(net::Exchange& exchange, net::Task<Result<void>> part,
                                Result<void>& outcome) {
  auto racing =
      rpc::race(std::move(part), outcome, exchange.stream, rpc::WatchPeer::yes, std::nullopt);
  co_return co_await std::move(racing) == rpc::Ended::finished;
}

net::Task<void> stream_run(net::Exchange& exchange, std::shared_ptr<Context> context,
                           std::shared_ptr<Run> run) {
  // However slowly a client reads: the kernel waits for it.
  exchange.stream.set_write_timeout(std::nullopt);
  auto starting = exchange.response.start(200, with_origin(exchange, {}), std::nullopt);
  if ((co_await std::move(starting)).ok()) {
    Result<void> outcome;
    auto relaying = while_connected(exchange, relay(exchange.response, run), outcome);
    (void)co_await std::move(relaying);
  }
  if (!exchange.response.finished()) {
    context->abandon(run);
    exchange.response.abort();
  }
  exchange.stream.set_write_timeout(net::HttpLimits().write_time);
}

}  // namespace atl::agent::interpreter
