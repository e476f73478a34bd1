// A server of the sandbox API, Atoll's or E2B's own, as its clients see it: where it is, the key,
// and one call of its API. Everything it answers is untrusted input.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "net/http.h"

namespace atl::net {
class TlsClientContext;
}

namespace atl::client {

struct Server {
  std::string host;  // a name or an address
  std::uint16_t port = 0;
  bool tls = false;
  std::string ca_file;  // trusted besides the machine's; may be empty
  std::string key;
  std::shared_ptr<net::TlsClientContext> trust;  // made by the first who needs it, if it is null
  std::string url() const;
};

// invalid_argument: no http or https URL. A path is dropped.
Result<Server> parse_server(std::string_view url, std::string key);
// Reads the certificates once for all connections of the copies. Nothing to do without TLS.
Result<void> load_trust(Server& server);

inline constexpr std::chrono::milliseconds kConnectTime{10'000};
// unavailable: nobody is there, or nobody within kConnectTime.
net::Task<Result<std::unique_ptr<net::Stream>>> open_stream(Server server);

struct ApiAnswer {
  int status = 0;
  net::Headers headers;
  json::value body;  // null when there is none
};
inline constexpr std::chrono::milliseconds kApiTime{120'000};
// One call over a connection of its own. Errors: what the server answered instead of a 2xx, in its
// own words; unavailable: no server there; deadline_exceeded: no answer within `limit`.
net::Task<Result<ApiAnswer>> call_api(Server server, std::string method, std::string target,
                                      std::optional<json::value> body = std::nullopt,
                                      std::chrono::milliseconds limit = kApiTime);

// The parts of a call, for whoever keeps connections.
net::RequestHead api_request(const Server& server, std::string_view method, std::string target,
                             bool has_body);
Result<ApiAnswer> api_answer(net::HttpClient::Answer raw);

// What a status of the API other than 2xx means.
Errc code_of_status(int status);

// Fields of answers; empty or null when they are missing or of another kind.
std::string text_of(const json::value& object, std::string_view name);
std::int64_t number_of(const json::value& object, std::string_view name);

}  // namespace atl::client
