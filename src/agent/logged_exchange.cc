#include "agent/logged_exchange.h"

namespace atl::agent {
namespace {

constexpr std::size_t kAnswerExcerpt = 400;

}  // namespace

LoggedExchange::LoggedExchange(net::Exchange& inner, LogRing& logs)
    : LoggedExchange(inner, std::make_unique<Writer>(inner, logs)) {}

LoggedExchange::LoggedExchange(net::Exchange& inner, std::unique_ptr<Writer> writer)
    : net::Exchange(inner.body, *writer, inner.stream), inner_(inner), writer_(std::move(writer)) {
  request = inner.request;
  listener = inner.listener;
  peer = inner.peer;
}

net::Task<Result<void>> LoggedExchange::Writer::send(int status, net::Headers headers,
                                                     std::string body) {
  if (status >= 400) {
    // Not the target: its query may hold a signature.
    logs_.add(LogRing::Level::warn, "file request failed",
              {{"method", inner_.request.method},
               {"path", inner_.request.query_param("path").value_or("")},
               {"status", std::to_string(status)},
               {"answer", body.substr(0, kAnswerExcerpt)}});
  }
  return inner_.response.send(status, std::move(headers), std::move(body));
}

}  // namespace atl::agent
