#include "session/service.h"

#include "session/encode.h"
#include "session/options.h"

namespace atl::session {
namespace {

enum Verb : int { kList, kAcquire, kInfo, kRemove, kPause };

constexpr api::ServiceRoute kRoutes[] = {
    {"GET", "/sessions", kList},
    {"PUT", "/sessions/{}", kAcquire},
    {"GET", "/sessions/{}", kInfo},
    {"DELETE", "/sessions/{}", kRemove},
    {"POST", "/sessions/{}/pause", kPause},
};

}  // namespace

SessionService::SessionService(Manager& sessions, std::string domain)
    : sessions_(sessions), domain_(std::move(domain)) {}

std::span<const api::ServiceRoute> SessionService::routes() const { return kRoutes; }

net::Task<Result<api::Reply>> SessionService::answer(api::ServiceCall& call) {
  switch (call.route.action) {
    case kAcquire:
      co_return co_await acquire(call);
    case kInfo:
      co_return co_await show(call);
    case kPause: {
      auto pausing = sessions_.pause(call.who.caller, call.params.at(0));
      ATOLL_CO_TRY(co_await std::move(pausing));
      co_return co_await show(call);
    }
    case kRemove: {
      auto removing = sessions_.remove(call.who.caller, call.params.at(0));
      ATOLL_CO_TRY(co_await std::move(removing));
      co_return api::no_content();
    }
    default: {
      // Another node asks for what this one has.
      const bool own = call.exchange.request.query_param("own") == "true";
      auto listing = own ? sessions_.list_own(call.who.caller) : sessions_.list(call.who.caller);
      ATOLL_CO_TRY_ASSIGN(const std::vector<Session> found, co_await std::move(listing));
      json::array out;
      for (const Session& session : found) out.push_back(session_json(session));
      co_return api::json_reply(200, out);
    }
  }
}

net::Task<Result<api::Reply>> SessionService::acquire(api::ServiceCall& call) {
  ATOLL_CO_TRY(check_key(call.params.at(0)));
  ATOLL_CO_TRY_ASSIGN(Options options, decode_options(call.body));
  auto acquiring = sessions_.acquire(call.who.caller, call.params.at(0), std::move(options));
  ATOLL_CO_TRY_ASSIGN(const Acquired acquired, co_await std::move(acquiring));
  co_return api::json_reply(acquired.came == Came::created ? 201 : 200,
                            acquired_json(acquired, domain_));
}

net::Task<Result<api::Reply>> SessionService::show(api::ServiceCall& call) {
  auto asking = sessions_.info(call.who.caller, call.params.at(0));
  ATOLL_CO_TRY_ASSIGN(const Session session, co_await std::move(asking));
  co_return api::json_reply(200, session_json(session));
}

}  // namespace atl::session
