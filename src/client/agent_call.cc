#include "client/agent_call.h"

#include <boost/asio/steady_timer.hpp>

#include "base/encoding.h"
#include "base/json.h"
#include "rpc/error_body.h"

namespace atl::client {

net::Headers agent_headers(const Inside& inside, const std::string& user) {
  net::Headers headers = inside.headers(kAgentPort);
  if (!user.empty()) headers.set("Authorization", "Basic " + base64_encode(user + ":"));
  return headers;
}

Error agent_error(Error error) {
  const auto says = [&error](std::string_view text) {
    return error.message.find(text) != std::string::npos;
  };
  if (error.code == Errc::unauthenticated && (says("invalid username") || says("looking up user")))
    error.code = Errc::invalid_argument;
  // A proxy's words for a sandbox that does not run.
  if (error.code == Errc::unavailable && says("sandbox was not found"))
    error.code = Errc::not_found;
  if (error.code != Errc::resource_exhausted &&
      (says("not enough disk space") || says("no space left on device")))
    error.code = Errc::resource_exhausted;
  if (error.code == Errc::internal && says("ermission denied"))
    error.code = Errc::permission_denied;
  return error;
}

Error plain_error(int status, std::string_view body) {
  Error error = rpc::parse_error_body(status, body);
  if (status == 507) error.code = Errc::resource_exhausted;
  return agent_error(std::move(error));
}

struct Guard::State {
  State(net::Stream& guarded, std::chrono::milliseconds limit)
      : stream(&guarded), timer(guarded.executor(), limit) {}
  net::Stream* stream;  // null: nobody needs the guard any more
  net::asio::steady_timer timer;
  bool fired = false;
};

Guard::Guard(net::Stream& stream, std::chrono::milliseconds limit) {
  if (limit == limit.zero()) return;
  state_ = std::make_shared<State>(stream, limit);
  state_->timer.async_wait([state = state_](const boost::system::error_code& ec) {
    if (ec || state->stream == nullptr) return;
    state->fired = true;
    state->stream->close();
  });
}

Guard::~Guard() {
  if (!state_) return;
  state_->stream = nullptr;
  state_->timer.cancel();
}

bool Guard::fired() const { return state_ && state_->fired; }

net::Task<Result<void>> call_agent(Inside inside, std::string path,
                                   const google::protobuf::Message& in,
                                   google::protobuf::Message& out, std::string user) {
  auto connecting = inside.connect(kAgentPort);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  const Guard guard(client.stream(), kCallTime);
  rpc::CallOptions options;
  options.headers = agent_headers(inside, user);
  auto calling = rpc::unary(client, std::move(path), in, out, std::move(options));
  auto called = co_await std::move(calling);
  if (called.ok()) co_return called;
  if (guard.fired())
    co_return make_error(Errc::unavailable, "the agent of the sandbox does not answer");
  co_return agent_error(std::move(called).error());
}

}  // namespace atl::client
