#include "cli/remote.h"

#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <cstdlib>

#include "cli/home.h"
#include "cli/up.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<std::string> read_key(const Home& home) {
  auto key = read_file(home.key_file());
  if (!key.ok()) {
    return make_error(key.error().code, "cannot read the API key of " + home.path() +
                                            ". FIX: run this as root, or set E2B_API_URL and "
                                            "E2B_API_KEY");
  }
  while (!key->empty() && (key->back() == '\n' || key->back() == ' ')) key->pop_back();
  return key;
}

net::Task<void> keep(std::optional<Result<net::HttpClient::Answer>>& into,
                     net::Task<Result<net::HttpClient::Answer>> call) {
  into.emplace(co_await std::move(call));
}

}  // namespace

// What a server answers is parsed without root, where the user for that exists.
Result<Remote> without_root(Result<Remote> remote) {
  if (!remote.ok() || ::geteuid() != 0) return remote;
  if (auto user = find_server_user(); user.ok()) {
    ATOLL_TRY(become(*user));
  }
  return remote;
}

Result<Remote> from_environment(const std::string& url) {
  ATOLL_TRY_ASSIGN(Remote remote, client::parse_server(url, environment("E2B_API_KEY")));
  remote.ca_file = environment("NODE_EXTRA_CA_CERTS");
  return remote;
}

// A URL in the environment, else the server of the home on this machine, else a domain in the
// environment: `atoll up --domain` exports one that may not resolve here.
Result<Remote> locate(const std::string& home_option) {
  const bool environment_counts = home_option.empty() && !environment("E2B_API_KEY").empty();
  if (environment_counts && !environment("E2B_API_URL").empty())
    return from_environment(environment("E2B_API_URL"));
  const std::string path = default_home(home_option);
  auto server = find_server(path);
  if (!server.ok() && environment_counts && !environment("E2B_DOMAIN").empty())
    return from_environment("https://api." + environment("E2B_DOMAIN"));
  if (!server.ok()) {
    if (server.error().code != Errc::not_found) return std::move(server).error();
    return make_error(Errc::unavailable,
                      server.error().message +
                          ". FIX: start one with `atoll up -d`, name its --home, or set "
                          "E2B_API_URL and E2B_API_KEY");
  }
  ATOLL_TRY_ASSIGN(const std::string key, read_key(Home::at(path)));
  return client::parse_server(server->url, key);
}

Result<Remote> find_remote(const std::string& home_option) {
  return without_root(locate(home_option));
}

std::string find_admin_token(const std::string& home_option) {
  const std::string given = environment("ATOLL_ADMIN_TOKEN");
  if (home_option.empty() && !given.empty()) return given;
  const auto kept = read_file(Home::at(default_home(home_option)).admin_token_file());
  return kept.ok() ? kept->substr(0, kept->find('\n')) : std::string();
}

net::Task<Result<net::HttpClient::Answer>> ApiClient::exchange(net::RequestHead head,
                                                               std::string body) {
  const bool kept = client_.has_value();
  for (int attempt = 0;; ++attempt) {
    if (!client_) {
      auto opening = open_stream(remote_);
      ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(opening));
      client_.emplace(std::move(stream));
    }
    auto asking = client_->request(head, body, 64 << 20);
    auto answer = co_await std::move(asking);
    if (!answer.ok() || !client_->reusable()) client_.reset();
    // A kept connection may have been closed meanwhile: once more over a new one.
    if (!answer.ok() && kept && attempt == 0 && answer.error().code == Errc::unavailable) continue;
    co_return answer;
  }
}

Result<ApiClient::Answer> ApiClient::call(std::string_view method, std::string target,
                                          std::optional<json::value> body) {
  net::RequestHead head = client::api_request(remote_, method, std::move(target), body.has_value());
  for (const auto& field : extra_) head.headers.add(field.name, field.value);
  std::string text = body ? json::serialize(*body) : std::string();
  std::optional<Result<net::HttpClient::Answer>> outcome;
  asio::co_spawn(io_, keep(outcome, exchange(std::move(head), std::move(text))),
                 [](std::exception_ptr) {});
  io_.restart();
  io_.run();
  if (!outcome) return make_error(Errc::internal, "the call ended without an answer");
  ATOLL_TRY_ASSIGN(net::HttpClient::Answer raw, std::move(*outcome));
  return client::api_answer(std::move(raw));
}

Result<void> ApiClient::as_administrator(const std::string& token) {
  if (token.empty()) {
    return make_error(Errc::permission_denied,
                      "only the administrator may do this. FIX: run it as root on the server's "
                      "machine, or set ATOLL_ADMIN_TOKEN (HOME/keys/admin.token)");
  }
  ATOLL_TRY_ASSIGN(const Answer teams, call("GET", "/teams"));
  const auto* list = teams.body.if_array();
  const std::string team =
      list != nullptr && !list->empty() ? text_of(list->front(), "teamID") : std::string();
  if (team.empty()) return make_error(Errc::data_loss, "the server's answer names no team");
  extra_.set("X-Admin-Token", token);
  extra_.set("X-Team-ID", team);
  return {};
}

}  // namespace atl::cli
