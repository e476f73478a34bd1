// The server as the verbs see it: an HTTP client of its API and of the sandboxes behind it.
//
// The server is the one of a home (server.json and the key file), or, without --home, the one that
// E2B_API_URL (or E2B_DOMAIN) and E2B_API_KEY name. Everything it answers is untrusted input.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "client/server.h"

namespace atl::cli {

using Remote = client::Server;
using client::number_of;
using client::open_stream;
using client::text_of;

// `home_option` as on the command line; empty: environment first, then the default home.
Result<Remote> find_remote(const std::string& home_option);
// ATOLL_ADMIN_TOKEN or the file of the home; empty where neither is to be had. Before find_remote,
// which gives up root.
std::string find_admin_token(const std::string& home_option);

// One call after the other over a kept connection. Blocking: for verbs, not for servers.
class ApiClient {
 public:
  explicit ApiClient(Remote remote) : remote_(std::move(remote)) {}

  using Answer = client::ApiAnswer;
  // Errors: what the server answered instead of a 2xx, in its own words; unavailable: no server
  // there.
  Result<Answer> call(std::string_view method, std::string target,
                      std::optional<json::value> body = std::nullopt);
  // From now on as the administrator, for the team of the key. permission_denied: no token.
  Result<void> as_administrator(const std::string& token);
  const Remote& remote() const { return remote_; }

 private:
  net::Task<Result<net::HttpClient::Answer>> exchange(net::RequestHead head, std::string body);

  Remote remote_;
  net::Headers extra_;  // of every call
  boost::asio::io_context io_;
  std::optional<net::HttpClient> client_;
};

}  // namespace atl::cli
