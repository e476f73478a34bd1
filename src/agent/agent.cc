#include "agent/agent.h"

#include <charconv>
#include <utility>

#include "agent/auth.h"
#include "agent/cors.h"
#include "agent/dial.h"
#include "agent/hooks.h"
#include "agent/http_glue.h"
#include "agent/interpreter/service.h"
#include "agent/log_ring.h"
#include "agent/logged_exchange.h"
#include "agent/metrics.h"
#include "agent/process_manager.h"
#include "agent/reaper.h"
#include "agent/start_command.h"
#include "agent/wake.h"
#include "base/log.h"
#include "net/http_server.h"

namespace atl::agent {
namespace {

constexpr std::string_view kHostListener = "host";
constexpr std::string_view kTcpListener = "tcp";
constexpr std::size_t kMaxInitBody = 4 << 20;
constexpr std::int64_t kClockSlack = 5'000'000'000;

net::ServerOptions server_options() {
  net::ServerOptions options;
  options.error_body = plain_error_body;
  return options;
}

}  // namespace

struct Agent::Impl {
  Impl(net::asio::io_context& io, AgentOptions given)
      : io(io),
        options(std::move(given)),
        state(options.default_user),
        reaper(io),
        processes(io, reaper, &logs),
        metrics(state),
        server(io, server_options(), [this](net::Exchange& exchange) { return handle(exchange); }) {
    state.set_template_vars(std::move(options.template_vars));
    register_process(router, state, processes, options.path);
    register_filesystem(router, state);
  }

  // CORS first: a page must be able to read errors too.
  net::Task<void> handle(net::Exchange& exchange) {
    if (exchange.request.method == "CONNECT") {
      co_await dial(exchange);
    } else if (is_preflight(exchange.request)) {
      co_await answer_preflight(exchange);
    } else if (exchange.request.headers.has("Origin")) {
      CorsExchange wrapped(exchange);
      co_await authorize(wrapped);
    } else {
      co_await authorize(exchange);
    }
  }

  bool trusts(const net::Exchange& exchange) const {
    return exchange.listener == kHostListener ||
           options.control_plane == ControlPlane::any_listener;
  }

  net::Task<void> dial(net::Exchange& exchange) {
    if (exchange.listener != kHostListener) {
      co_await send_plain_error(exchange, 405, "method not allowed");
      co_return;
    }
    co_await handle_dial(exchange);
  }

  net::Task<void> authorize(net::Exchange& exchange) {
    if (is_control_plane_route(exchange.request.path()) && !trusts(exchange)) {
      co_await send_plain_error(exchange, 404, "page not found");
      co_return;
    }
    if (!is_token_accepted(state, exchange.request)) {
      co_await send_plain_error(exchange, 401, std::string(kUnauthorized));
      co_return;
    }
    if (const auto user = check_basic_user(exchange.request); !user.ok()) {
      co_await rpc::send_error(exchange, user.error());
      co_return;
    }
    co_await route(exchange);
  }

  net::Task<void> route(net::Exchange& exchange) {
    auto call = router.handle(exchange);
    if (co_await std::move(call)) co_return;
    const std::string_view path = exchange.request.path();
    if (path == "/files" || path == "/files/compose") {
      LoggedExchange logged(exchange, logs);
      auto files = handle_files(logged, state);
      if (co_await std::move(files)) co_return;
    }
    const std::string_view method = exchange.request.method;
    const bool get = method == "GET" || method == "HEAD";
    if (path == "/health" || path == "/metrics" || path == "/envs") {
      if (!get) {
        co_await send_plain_error(exchange, 405, "method not allowed", {{"Allow", "GET"}});
      } else if (path == "/health") {
        co_await send_empty(exchange, 204, {{"Cache-Control", "no-store"}});
      } else if (path == "/metrics") {
        co_await send_json(exchange, 200, metrics.collect(), {{"Cache-Control", "no-store"}});
      } else {
        co_await send_json(exchange, 200, variables(), {{"Cache-Control", "no-store"}});
      }
    } else if (path == "/logs") {
      co_await serve_logs(exchange);
    } else if (path == "/init") {
      co_await init(exchange);
    } else if (path == "/suspend") {
      co_await suspend(exchange);
    } else if (path == "/wake") {
      co_await wake(exchange);
    } else if (path == "/warm" && interpreter) {
      co_await warm(exchange);
    } else {
      co_await send_plain_error(exchange, 404, "page not found");
    }
  }

  json::object variables() const {
    json::object out;
    for (const auto& [name, value] : state.env_vars()) out[name] = value;
    return out;
  }

  void write_markers() const {
    const auto written = write_marker_files(state, options.marker_directory);
    if (!written.ok())
      log::warn("cannot write the marker files", {{"error", written.error().message}});
  }

  net::Task<void> serve_logs(net::Exchange& exchange) {
    if (exchange.request.method != "GET") {
      co_await send_plain_error(exchange, 405, "method not allowed", {{"Allow", "GET"}});
      co_return;
    }
    const std::string text = exchange.request.query_param("after").value_or("0");
    std::uint64_t after = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), after);
    if (ec != std::errc() || end != text.data() + text.size()) {
      co_await send_plain_error(exchange, 400, "after must be a number of an entry");
      co_return;
    }
    co_await send_json(exchange, 200, logs.after(after), {{"Cache-Control", "no-store"}});
  }

  // Certificates and start command of a request that was applied. A second request with the same
  // content changes nothing.
  void set_up(const std::optional<std::string>& ca_bundle,
              const std::optional<std::string>& start_command) {
    if (ca_bundle) {
      const auto installed = install_ca_bundle(*ca_bundle, options.trust_store);
      if (!installed.ok())
        logs.add(LogRing::Level::error,
                 "cannot install certificates: " + installed.error().message);
      state.set_default_vars(ca_variables(options.trust_store));
    }
    // Once in the life of this agent, which is one boot: a server that takes over sends it again.
    if (start_command && !start_command->empty() && !start_command_seen) {
      start_command_seen = true;
      run_start_command(io, *start_command, state, processes, options.path, logs);
    }
  }

  void apply(InitRequest request, AgentState::Order order) {
    const auto ca_bundle = std::exchange(request.ca_bundle, std::nullopt);
    const auto start_command = std::exchange(request.start_command, std::nullopt);
    if (!state.apply(std::move(request), order)) return;
    write_markers();
    set_up(ca_bundle, start_command);
    if (interpreter) interpreter->initialised();
  }

  // The body of a POST. Nothing: it was answered already.
  static net::Task<std::optional<std::string>> read_post(net::Exchange& exchange) {
    if (exchange.request.method != "POST") {
      co_await send_plain_error(exchange, 405, "method not allowed", {{"Allow", "POST"}});
      co_return std::nullopt;
    }
    auto reading = exchange.body.read_all(kMaxInitBody);
    auto body = co_await std::move(reading);
    if (body.ok()) co_return *std::move(body);
    co_await send_plain_error(exchange, body.error().code == Errc::resource_exhausted ? 413 : 400,
                              body.error().message);
    co_return std::nullopt;
  }

  net::Task<void> init(net::Exchange& exchange) {
    const auto body = co_await read_post(exchange);
    if (!body) co_return;
    auto request = parse_init(*body);
    if (!request.ok()) {
      co_await send_plain_error(exchange, 400, request.error().message);
      co_return;
    }
    // The host's word needs no proof; from anywhere else, whoever knows the token may change
    // things.
    if (exchange.listener != kHostListener &&
        !state.token_matches(request->access_token.value_or("")) &&
        !state.token_matches(exchange.request.headers.get("X-Access-Token"))) {
      co_await send_plain_error(exchange, 401, "access token validation failed");
      co_return;
    }
    apply(*std::move(request), AgentState::Order::newer);
    co_await send_empty(
        exchange, 204,
        {{"Cache-Control", "no-store"}, {"X-Envd-Version", std::string(kEnvdVersion)}});
  }

  // Answers when the kernel of the default Python context has done what a first cell needs.
  net::Task<void> warm(net::Exchange& exchange) {
    if (exchange.request.method != "POST") {
      co_await send_plain_error(exchange, 405, "method not allowed", {{"Allow", "POST"}});
      co_return;
    }
    auto warming = interpreter->warm();
    const auto warmed = co_await std::move(warming);
    if (warmed.ok()) {
      co_await send_empty(exchange, 204, {{"Cache-Control", "no-store"}});
    } else {
      co_await send_plain_error(exchange, 503, warmed.error().message);
    }
  }

  // With `?soon=1` it is only announced: clients' connections are about to end, and what they asked
  // for goes on. Else: lets go of everything whose other end is outside of the sandbox, for memory
  // that is written to files. Closed by ourselves and not by the server: whoever sees the end of
  // this connection knows that the last descriptor is gone.
  net::Task<void> suspend(net::Exchange& exchange) {
    if (exchange.request.method != "POST") {
      co_await send_plain_error(exchange, 405, "method not allowed", {{"Allow", "POST"}});
      co_return;
    }
    if (exchange.request.query_param("soon")) {
      if (interpreter) interpreter->expect_suspend();
      co_await send_empty(exchange, 204, {{"Cache-Control", "no-store"}});
      co_return;
    }
    if (interpreter) {
      auto suspending = interpreter->suspend();
      co_await std::move(suspending);
    }
    auto closing = server.close_connections(std::string(kHostListener), exchange.stream);
    co_await std::move(closing);
    co_await send_empty(exchange, 204, {{"Cache-Control", "no-store"}, {"Connection", "close"}});
    exchange.stream.close();
  }

  // After a restore. The clock is the host's and needs nothing; that it is the server's, too, is
  // checked, because tokens and timeouts depend on it.
  net::Task<void> wake(net::Exchange& exchange) {
    const auto body = co_await read_post(exchange);
    if (!body) co_return;
    auto request = parse_wake(*body);
    if (!request.ok()) {
      co_await send_plain_error(exchange, 400, request.error().message);
      co_return;
    }
    check_clock(request->init.timestamp_ns);
    apply(std::move(request->init), AgentState::Order::any);
    if (request->hostname) {
      const auto named = set_host_name(*request->hostname, options.host_files);
      if (!named.ok())
        logs.add(LogRing::Level::warn, "cannot set the host's name: " + named.error().message);
    }
    if (request->forked && interpreter) interpreter->forked(request->seed);
    logs.add(LogRing::Level::info, request->forked ? "woken as a copy" : "woken");
    auto running = run_hooks(io, reaper, logs, hooks_for(*request));
    co_await std::move(running);
    co_await send_empty(exchange, 204, {{"Cache-Control", "no-store"}});
  }

  void check_clock(std::optional<std::int64_t> server) {
    if (!server) return;
    const auto own = std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    if (own - *server > kClockSlack || *server - own > kClockSlack)
      logs.add(LogRing::Level::warn, "the clock of the sandbox is not the server's");
  }

  Hooks hooks_for(const WakeRequest& request) {
    Hooks hooks;
    hooks.directory =
        options.hooks_directory + (request.forked ? "/after-fork.d" : "/after-resume.d");
    std::map<std::string, std::string> told;
    if (const auto id = state.internal_vars().find("E2B_SANDBOX_ID");
        id != state.internal_vars().end())
      told["ATOLL_SANDBOX_ID"] = id->second;
    if (!request.seed.empty()) told["ATOLL_SEED"] = derive_seed(request.seed, "hooks");
    auto root = lookup_user("root");
    if (root.ok()) hooks.env = process_environment(state, options.path, *root, told);
    return hooks;
  }

  // A sandbox whose interpreter cannot start still serves commands and files.
  void start_interpreter() {
    const InterpreterOptions& wanted = options.interpreter;
    auto languages = interpreter::load_languages(wanted.config);
    if (!languages.ok()) {
      if (languages.error().code != Errc::not_found)
        log::error("no code interpreter", {{"error", languages.error().message}});
      return;
    }
    interpreter::LauncherOptions launching;
    launching.kernels = wanted.kernels;
    launching.user = wanted.user;
    launching.path = options.path;
    launching.nursery = wanted.nursery;
    launching.nursery_uid = wanted.nursery_uid;
    interpreter = std::make_unique<interpreter::Interpreter>(io, state, reaper, logs,
                                                             std::move(launching), *languages);
    interpreter_service = std::make_unique<interpreter::Service>(io, *interpreter);
    interpreter->start();
    const auto bound = interpreter_service->listen(wanted.port);
    if (bound.ok()) {
      interpreter_port = *bound;
    } else {
      log::error("the code interpreter cannot listen", {{"error", bound.error().message}});
    }
  }

  net::asio::io_context& io;
  AgentOptions options;
  AgentState state;
  LogRing logs;
  bool start_command_seen = false;
  Reaper reaper;
  ProcessManager processes;
  Metrics metrics;
  rpc::Router router;
  std::unique_ptr<interpreter::Interpreter> interpreter;
  std::unique_ptr<interpreter::Service> interpreter_service;
  net::HttpServer server;
  std::uint16_t port = 0;
  std::uint16_t interpreter_port = 0;
};

Agent::Agent(net::asio::io_context& io, AgentOptions options)
    : impl_(std::make_unique<Impl>(io, std::move(options))) {}
Agent::~Agent() = default;

Result<void> Agent::start() {
  ATOLL_TRY(impl_->reaper.start());
  impl_->write_markers();
  impl_->start_interpreter();
  if (impl_->options.listen_fd) {
    ATOLL_TRY(impl_->server.listen_fd(*impl_->options.listen_fd, std::string(kHostListener)));
  }
  if (impl_->options.port) {
    const std::string port = std::to_string(*impl_->options.port);
    // Both families by one socket, unless the kernel has no IPv6.
    auto bound = impl_->server.listen_tcp("[::]:" + port, std::string(kTcpListener));
    if (!bound.ok() && bound.error().sys_errno != EADDRINUSE) {
      bound = impl_->server.listen_tcp("0.0.0.0:" + port, std::string(kTcpListener));
    }
    if (!bound.ok()) return std::move(bound).error();
    impl_->port = *bound;
  }
  return {};
}

std::uint16_t Agent::port() const { return impl_->port; }
std::uint16_t Agent::interpreter_port() const { return impl_->interpreter_port; }
AgentState& Agent::state() { return impl_->state; }

}  // namespace atl::agent
