#include "agent/files.h"

#include <charconv>
#include <ctime>
#include <memory>

#include "agent/agent.h"
#include "agent/entry.h"
#include "agent/http_glue.h"
#include "agent/paths.h"
#include "agent/signature.h"

namespace atl::agent {
namespace {

constexpr std::uint64_t kDiscardBytes = 256 << 20;

// Token in the header, else a signature in the URL. Without a token in the state everything is
// allowed.
Result<void> authorize(const net::RequestHead& request, const AgentState& state,
                       FileOperation operation) {
  if (!state.access_token()) return {};
  const std::string_view given = request.headers.get("X-Access-Token");
  if (!given.empty()) {
    if (state.token_matches(given)) return {};
    return make_error(Errc::unauthenticated, "access token present in header but does not match");
  }
  SignedRequest check{request.query_param("path").value_or(""), operation,
                      request.query_param("username").value_or(""), std::nullopt};
  if (const auto text = request.query_param("signature_expiration")) {
    std::int64_t seconds = 0;
    const auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), seconds);
    if (ec != std::errc() || end != text->data() + text->size()) {
      return make_error(Errc::invalid_argument,
                        "invalid format for parameter signature_expiration: not a number");
    }
    check.expiration = seconds;
  }
  return check_signature(check, *state.access_token(), request.query_param("signature"),
                         std::time(nullptr));
}

net::Task<void> serve_files(net::Exchange& exchange, AgentState& state, FileOperation operation) {
  const net::RequestHead& request = exchange.request;
  if (auto allowed = authorize(request, state, operation); !allowed.ok()) {
    co_return co_await send_failure(exchange, std::move(allowed).error());
  }
  auto user = rest_user(request.query_param("username"), state);
  if (!user.ok()) co_return co_await send_failure(exchange, std::move(user).error());
  const auto path = request.query_param("path");
  if (operation == FileOperation::write) {
    co_return co_await upload_files(exchange, state, *user, path);
  }
  auto resolved = resolve_path(path.value_or(""), *user, state.default_workdir());
  if (!resolved.ok()) co_return co_await send_failure(exchange, std::move(resolved).error());
  co_await download_file(exchange, *resolved);
}

}  // namespace

net::Task<bool> handle_files(net::Exchange& exchange, AgentState& state) {
  const std::string_view path = exchange.request.path();
  const std::string& method = exchange.request.method;
  std::string allowed;
  if (path == "/files") {
    if (method == "GET") {
      co_await serve_files(exchange, state, FileOperation::read);
      co_return true;
    }
    if (method == "POST") {
      co_await serve_files(exchange, state, FileOperation::write);
      co_return true;
    }
    allowed = "GET, POST";
  } else if (path == "/files/compose") {
    if (method == "POST") {
      co_await compose_files(exchange, state);
      co_return true;
    }
    allowed = "POST";
  } else {
    co_return false;
  }
  co_await send_plain_error(exchange, 405, "method not allowed", {{"Allow", allowed}});
  co_return true;
}

int rest_status(const Error& error) {
  if (is_disk_full(error.sys_errno)) return 507;
  switch (error.code) {
    case Errc::invalid_argument:
      return 400;
    case Errc::unauthenticated:
      return 401;
    case Errc::not_found:
      return 404;
    default:
      return 500;
  }
}

net::Task<void> send_failure(net::Exchange& exchange, Error error, std::optional<int> status) {
  co_await send_plain_error(exchange, status.value_or(rest_status(error)),
                            to_valid_utf8(error.message));
}

net::Task<void> discard_body(net::BodyReader& body) {
  const std::unique_ptr<char[]> sink(new char[kFileBufferBytes]);
  std::uint64_t total = 0;
  while (total < kDiscardBytes) {
    auto reading = body.read_some(std::span<char>(sink.get(), kFileBufferBytes));
    const auto n = co_await std::move(reading);
    if (!n.ok() || *n == 0) co_return;
    total += *n;
  }
}

Result<User> rest_user(const std::optional<std::string>& name, const AgentState& state) {
  const std::string& wanted = name && !name->empty() ? *name : state.default_user();
  auto user = lookup_user(wanted);
  if (!user.ok()) return std::move(user).error().with("error looking up user '" + wanted + "'");
  return user;
}

}  // namespace atl::agent
