#include "agent/interpreter/service.h"

#include <cerrno>

#include "agent/interpreter/answers.h"
#include "agent/interpreter/relay.h"
#include "base/encoding.h"

namespace atl::agent::interpreter {
namespace {

enum class Route { none, health, execute, contexts, context, restart };

struct Target {
  Route route = Route::none;
  std::string id;
};

Target target_of(std::string_view path) {
  if (path == "/health") return {Route::health, {}};
  if (path == "/execute") return {Route::execute, {}};
  if (path == "/contexts") return {Route::contexts, {}};
  constexpr std::string_view kBelow = "/contexts/";
  constexpr std::string_view kRestart = "/restart";
  if (!path.starts_with(kBelow)) return {};
  path.remove_prefix(kBelow.size());
  const bool restart = path.ends_with(kRestart);
  if (restart) path.remove_suffix(kRestart.size());
  const auto id = percent_decode(path, PlusIs::plus);
  if (path.empty() || path.find('/') != std::string_view::npos || !id) return {};
  return {restart ? Route::restart : Route::context, *id};
}

std::string_view allowed(Route route) {
  switch (route) {
    case Route::health:
      return "GET";
    case Route::contexts:
      return "GET, POST";
    case Route::context:
      return "DELETE";
    default:
      return "POST";
  }
}

bool allows(Route route, std::string_view method) {
  if (route == Route::contexts) return method == "GET" || method == "POST";
  return method == allowed(route);
}

std::string context_json(const Context& context) {
  return R"({"id":)" + json_quote(context.spec().id) + R"(,"language":)" +
         json_quote(context.spec().language->name) + R"(,"cwd":)" + json_quote(context.spec().cwd) +
         "}";
}

int status_of(const Error& error) { return error.code == Errc::resource_exhausted ? 429 : 500; }

net::ServerOptions server_options() {
  net::ServerOptions options;
  options.max_connections = 1000;
  options.error_body = [](int, std::string_view message) {
    return R"({"detail":)" + json_quote(message) + "}";
  };
  return options;
}

}  // namespace

Service::Service(net::asio::io_context& io, Interpreter& interpreter)
    : interpreter_(interpreter),
      server_(io, server_options(), [this](net::Exchange& exchange) { return handle(exchange); }) {}

Result<std::uint16_t> Service::listen(std::uint16_t port) {
  const std::string number = std::to_string(port);
  // Both families by one socket, unless the kernel has no IPv6.
  auto bound = server_.listen_tcp("[::]:" + number, "interpreter");
  if (!bound.ok() && bound.error().sys_errno != EADDRINUSE)
    bound = server_.listen_tcp("0.0.0.0:" + number, "interpreter");
  return bound;
}

net::Task<void> Service::handle(net::Exchange& exchange) {
  if (is_interpreter_preflight(exchange.request)) co_return co_await answer_preflight(exchange);
  const Target target = target_of(exchange.request.path());
  if (target.route == Route::none) co_return co_await send_detail(exchange, 404, "Not Found");
  const std::string_view method = exchange.request.method;
  if (!allows(target.route, method))
    co_return co_await send_detail(exchange, 405, "Method Not Allowed",
                                   std::string(allowed(target.route)));
  switch (target.route) {
    case Route::health:
      co_return co_await send_json_text(exchange, 200, "\"OK\"");
    case Route::execute:
      co_return co_await execute(exchange);
    case Route::contexts:
      if (method == "GET") co_return co_await list(exchange);
      co_return co_await create(exchange);
    case Route::context:
    case Route::restart:
      co_return co_await change(exchange, target.id, target.route == Route::restart);
    case Route::none:
      break;
  }
}

net::Task<std::optional<std::string>> Service::read_body(net::Exchange& exchange) {
  auto reading = exchange.body.read_all(kMaxBody);
  auto body = co_await std::move(reading);
  if (body.ok()) co_return *std::move(body);
  co_await send_text(exchange, body.error().code == Errc::resource_exhausted ? 413 : 400,
                     body.error().message);
  co_return std::nullopt;
}

net::Task<void> Service::list(net::Exchange& exchange) {
  std::string body = "[";
  for (const auto& context : interpreter_.contexts()) {
    if (body.size() > 1) body += ',';
    body += context_json(*context);
  }
  co_await send_json_text(exchange, 200, body + "]");
}

net::Task<void> Service::create(net::Exchange& exchange) {
  auto body = co_await read_body(exchange);
  if (!body) co_return;
  const auto parsed = parse_create(*body);
  if (!parsed.request) co_return co_await send_json_text(exchange, 422, parsed.detail);
  auto context = interpreter_.create(*parsed.request);
  if (!context.ok())
    co_return co_await send_text(exchange, status_of(context.error()),
                                 "Failed to create context: " + context.error().message);
  auto bringing = (*context)->ready_kernel();
  const auto kernel = co_await std::move(bringing);
  if (!kernel.ok()) {
    interpreter_.remove(*context);
    co_return co_await send_text(exchange, 500,
                                 "Failed to create context: " + kernel.error().message);
  }
  co_await send_json_text(exchange, 200, context_json(**context));
}

net::Task<void> Service::change(net::Exchange& exchange, std::string id, bool restart) {
  auto body = co_await read_body(exchange);  // nothing in it matters
  if (!body) co_return;
  const auto context = interpreter_.find(id);
  if (!context) co_return co_await send_text(exchange, 404, "Context " + id + " not found");
  if (restart) {
    auto restarting = context->restart();
    const auto restarted = co_await std::move(restarting);
    if (!restarted.ok())
      co_return co_await send_text(exchange, 500, "Failed to restart context " + id);
  } else {
    interpreter_.remove(context);
  }
  co_await send_json_text(exchange, 200, "null");
}

// The context of a run, with a kernel if this run is its first.
net::Task<std::shared_ptr<Context>> Service::context_of(net::Exchange& exchange,
                                                        const ExecuteRequest& request) {
  if (!request.context_id.empty()) {
    auto context = interpreter_.find(request.context_id);
    if (!context) co_await send_text(exchange, 404, "Context " + request.context_id + " not found");
    co_return context;
  }
  const std::size_t before = interpreter_.contexts().size();
  auto context = interpreter_.default_of(normalise_language(request.language));
  if (!context.ok()) {
    co_await send_text(exchange, status_of(context.error()),
                       "Failed to create context: " + context.error().message);
    co_return nullptr;
  }
  const bool made = interpreter_.contexts().size() > before;
  if ((*context)->has_kernel() || (*context)->waiting() > 0) co_return *std::move(context);
  Result<void> outcome;
  auto waiting = while_connected(exchange, wait_for_kernel(*context), outcome);
  const bool there = co_await std::move(waiting);
  if (there && outcome.ok()) co_return *std::move(context);
  if (!outcome.ok()) {
    if (made) interpreter_.remove(*context);
    co_await send_text(exchange, 500, "Failed to create context: " + outcome.error().message);
  }
  co_return nullptr;
}

net::Task<void> Service::execute(net::Exchange& exchange) {
  auto body = co_await read_body(exchange);
  if (!body) co_return;
  auto parsed = parse_execute(*body);
  body->clear();
  body->shrink_to_fit();
  if (!parsed.request) co_return co_await send_json_text(exchange, 422, parsed.detail);
  ExecuteRequest& request = *parsed.request;
  if (!request.context_id.empty() && !request.language.empty())
    co_return co_await send_text(exchange, 400,
                                 "Only one of context_id or language can be provided");
  auto finding = context_of(exchange, request);
  const std::shared_ptr<Context> context = co_await std::move(finding);
  if (!context) co_return;
  if (request.has_arguments && context->spec().language->arguments == Arguments::none)
    co_return co_await send_text(
        exchange, 400,
        "arguments are not supported for " + std::string(context->spec().language->name));
  if (context->waiting() >= kMaxWaiting)
    co_return co_await send_text(exchange, 429,
                                 "Context " + context->spec().id + " has too many waiting runs");
  auto run = std::make_shared<Run>(std::move(request.line));
  context->enqueue(run);
  auto streaming = stream_run(exchange, context, run);
  co_await std::move(streaming);
}

}  // namespace atl::agent::interpreter
