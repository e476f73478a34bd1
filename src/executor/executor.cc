#include "executor/executor.h"

#include <array>
#include <boost/asio/experimental/awaitable_operators.hpp>

#include "base/ids.h"
#include "base/json.h"
#include "base/log.h"
#include "executor/run.h"
#include "net/origin.h"

namespace atl::executor {
namespace {

// A place, a sandbox, the run, what it left, each with its own limit: far beyond all of them.
constexpr std::chrono::minutes kNobodyWaitsLonger{120};
constexpr std::size_t kMaxDiscarded = 64 << 20;  // of a body that is too long
constexpr std::size_t kSmallBody = 1 << 20;
constexpr std::chrono::seconds kSilence{30};  // of who sends a body

net::Headers json_headers() { return {{"Content-Type", "application/json"}}; }

std::string error_body(int status, std::string_view message) {
  json::object out;
  out["code"] = status;
  out["message"] = json::string(message);
  out["detail"] = json::string(message);
  return json::serialize(out);
}

net::Task<void> discard(net::BodyReader& body, std::size_t at_most) {
  std::array<char, 16 << 10> bytes;
  for (std::size_t taken = 0; taken < at_most;) {
    auto reading = body.read_some(bytes);
    const auto got = co_await std::move(reading);
    if (!got.ok() || *got == 0) co_return;
    taken += *got;
  }
}

net::Task<void> refuse(net::Exchange& exchange, int status, std::string_view message) {
  net::Headers headers = json_headers();
  if (status == 401) headers.add("WWW-Authenticate", "Bearer");
  (void)co_await exchange.response.send(status, std::move(headers), error_body(status, message));
}

}  // namespace

Executor::Executor(net::asio::io_context& io, engine::Engine& engine, engine::Caller caller,
                   Enter enter, Settings settings)
    : engine_(engine),
      caller_(std::move(caller)),
      enter_(std::move(enter)),
      settings_(std::move(settings)),
      python_(settings_.pool, settings_.line),
      nodejs_(settings_.pool, settings_.line),
      large_(2 * settings_.pool, settings_.line),
      tasks_(io) {
  if (settings_.rate) limiter_.emplace(*settings_.rate);
}

net::Task<void> Executor::handle(net::Exchange& exchange) {
  const std::string_view path = exchange.request.path();
  const std::string_view method = exchange.request.method;
  if (path == "/" || path == "/healthz") {
    auto answering =
        method == "GET" ? health(exchange) : refuse(exchange, 405, "Method Not Allowed");
    co_await std::move(answering);
  } else if (path == "/run") {
    auto answering =
        method == "POST" ? handle_run(exchange) : refuse(exchange, 405, "Method Not Allowed");
    co_await std::move(answering);
  } else {
    auto answering =
        refuse(exchange, 404, "Not Found: GET /healthz and POST /run are all there is");
    co_await std::move(answering);
  }
}

// Healthy is who could serve a run now.
net::Task<void> Executor::health(net::Exchange& exchange) {
  const bool accepting = engine_.accepting();
  const bool there = engine_.templates().find(settings_.template_name).ok();
  if (accepting && there) {
    (void)co_await exchange.response.send(200, json_headers(), R"({"status":"ok"})");
    co_return;
  }
  json::object out;
  out["status"] = "unavailable";
  out["detail"] = accepting ? "there is no template " + settings_.template_name +
                                  ": prepare it with `atoll setup`, or choose another with "
                                  "--executor-template"
                            : "the server is shutting down";
  (void)co_await exchange.response.send(503, json_headers(), json::serialize(out));
}

bool Executor::authorized(const net::RequestHead& request) const {
  if (settings_.key.empty()) return true;
  if (constant_time_equal(request.headers.get("X-API-Key"), settings_.key)) return true;
  std::string_view bearer = request.headers.get("Authorization");
  constexpr std::string_view kScheme = "Bearer ";
  if (!net::iequals(bearer.substr(0, kScheme.size()), kScheme)) return false;
  bearer.remove_prefix(kScheme.size());
  return constant_time_equal(bearer, settings_.key);
}

bool Executor::from_elsewhere(const net::RequestHead& request) const {
  return settings_.key.empty() && !net::is_allowed_origin(request.headers.get("Origin"), "");
}

net::Task<void> Executor::handle_run(net::Exchange& exchange) {
  if (from_elsewhere(exchange.request)) {
    auto refusing = refuse(exchange, 403, "requests of pages of other sites are refused (Origin)");
    co_await std::move(refusing);
    co_return;
  }
  if (!authorized(exchange.request)) {
    auto refusing = refuse(exchange, 401,
                           "this executor wants its key: Authorization: Bearer KEY, or X-API-Key");
    co_await std::move(refusing);
    co_return;
  }
  engine::Gate::Pass room;
  if (exchange.body.content_length().value_or(kMaxBody) > kSmallBody) {
    auto entering = large_.enter(settings_.wait);
    auto entered = co_await std::move(entering);
    if (!entered.ok()) {
      (void)co_await exchange.response.send(200, json_headers(), encode(busy()));
      auto discarding = discard(exchange.body, kMaxDiscarded);
      co_await std::move(discarding);
      co_return;
    }
    room = std::move(*entered);
  }
  exchange.stream.set_read_timeout(kSilence);
  auto reading = exchange.body.read_all(kMaxBody);
  auto body = co_await std::move(reading);
  exchange.stream.set_read_timeout(std::nullopt);
  if (!body.ok()) {
    const bool large = body.error().code == Errc::resource_exhausted;
    auto refusing = refuse(exchange, large ? 413 : 400,
                           large ? "the body is longer than 32 MiB" : body.error().message);
    co_await std::move(refusing);
    // A client that is still sending reads the answer only if its bytes are taken.
    auto discarding = discard(exchange.body, kMaxDiscarded);
    co_await std::move(discarding);
    co_return;
  }
  auto decoded = decode_run(std::move(*body));
  if (const auto* wrong = std::get_if<Refused>(&decoded)) {
    (void)co_await exchange.response.send(422, json_headers(), encode_refused(*wrong));
    co_return;
  }
  if (limiter_ && !limiter_->take(exchange.peer, RateLimiter::Clock::now())) {
    (void)co_await exchange.response.send(200, json_headers(), encode(rate_limited()));
    co_return;
  }
  auto run = std::make_shared<Run>(std::get<RunRequest>(std::move(decoded)), std::move(room));
  bool closed = false;
  {
    std::lock_guard lock(mutex_);
    closed = closed_;
    if (!closed) runs_.insert(run);
  }
  if (closed || !tasks_.spawn("run", perform(run))) {
    (void)co_await exchange.response.send(200, json_headers(),
                                          encode(internal_error("the server is shutting down")));
    co_return;
  }
  using namespace net::asio::experimental::awaitable_operators;
  const auto first =
      co_await (run->answered.wait(kNobodyWaitsLonger) || exchange.stream.wait_peer_closed());
  if (first.index() == 1) {
    log::info("a client of the executor went away; its run ends");
    cancel(run);
    exchange.response.abort();
    co_return;
  }
  (void)co_await exchange.response.send(200, json_headers(), encode(run->answer));
}

void Executor::cancel(const RunPtr& run) {
  std::lock_guard lock(mutex_);
  cancel_locked(*run);
}

void Executor::cancel_locked(Run& run) {
  if (std::exchange(run.cancelled, true)) return;
  if (run.sandbox) tasks_.spawn("kill", kill(*run.sandbox));
}

void Executor::sweep() {
  for (const Language language : {Language::python, Language::nodejs}) {
    engine::ListQuery query;
    query.team_id = caller_.team_id;
    query.metadata = metadata_of(language);
    for (const engine::SandboxInfo& sandbox : engine_.list(query).items) {
      if (sandbox.record.key_id != caller_.key_id) continue;
      log::info("the run of an earlier server ends", {{"sandbox", sandbox.record.id.str()}});
      tasks_.spawn("kill", kill(sandbox.record.id));
    }
  }
}

net::Task<void> Executor::shutdown(std::chrono::milliseconds limit) {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    for (const RunPtr& run : runs_) cancel_locked(*run);
  }
  python_.close();
  nodejs_.close();
  large_.close();
  auto draining = tasks_.drain(limit);
  (void)co_await std::move(draining);
  tasks_.close();
}

}  // namespace atl::executor
