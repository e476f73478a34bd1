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

#include "base/json.h"
#include "base/result.h"
#include "net/http.h"

namespace atl::cli {

struct Remote {
  std::string host;  // a name or an address
  std::uint16_t port = 0;
  bool tls = false;
  std::string ca_file;  // trusted besides the machine's; may be empty
  std::string key;
  std::string url() const;
};

// `home_option` as on the command line; empty: environment first, then the default home.
Result<Remote> find_remote(const std::string& home_option);
Result<Remote> parse_remote(std::string_view url, std::string key);

net::Task<Result<std::unique_ptr<net::Stream>>> open_stream(const Remote& remote);

// One call after the other over a kept connection. Blocking: for verbs, not for servers.
class ApiClient {
 public:
  explicit ApiClient(Remote remote) : remote_(std::move(remote)) {}

  struct Answer {
    int status = 0;
    net::Headers headers;
    json::value body;  // null when there is none
  };
  // Errors: what the server answered instead of a 2xx, in its own words; unavailable: no server
  // there.
  Result<Answer> call(std::string_view method, std::string target,
                      std::optional<json::value> body = std::nullopt);
  const Remote& remote() const { return remote_; }

 private:
  net::Task<Result<net::HttpClient::Answer>> exchange(net::RequestHead head, std::string body);

  Remote remote_;
  boost::asio::io_context io_;
  std::optional<net::HttpClient> client_;
};

// Fields of answers; empty or null when they are missing or of another kind.
std::string text_of(const json::value& object, std::string_view name);
std::int64_t number_of(const json::value& object, std::string_view name);

}  // namespace atl::cli
