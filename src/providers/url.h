// Where another service is, and one call to it over HTTP or HTTPS, on a connection of its own.
// All that it answers is untrusted: bounded in size and time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "net/http.h"

namespace atl::providers {

struct Url {
  bool tls = false;
  std::string host;  // a name or an address, without brackets
  std::uint16_t port = 0;
  std::string path;  // empty, or begins with '/' and does not end with one

  // As in the Host header: with brackets, without a port that is the usual one.
  std::string authority() const;
  std::string str() const;
};

// invalid_argument: what is wrong with it, without naming it. No user, query or fragment.
Result<Url> parse_url(std::string_view text);

struct Outgoing {
  std::string method = "GET";
  Url url;
  std::string target = "/";  // behind the path of the URL
  net::Headers headers;      // Host is added
  std::string body;
  std::chrono::milliseconds limit{30'000};  // from the first packet to the last byte
  std::size_t max_answer = 8 << 20;
};

struct Incoming {
  int status = 0;
  std::string body;
};

// deadline_exceeded; unavailable: nobody answers there, or the connection broke; data_loss: not
// HTTP, or too long. `sent`, if given, is set when the request may have reached the other side.
net::Task<Result<Incoming>> send(Outgoing request, bool* sent = nullptr);

// The beginning of an answer, fit for a message.
std::string excerpt(std::string_view body);

}  // namespace atl::providers
