// Connect protocol, client side, over one HTTP connection: what the command line and the engine use
// to talk to an agent.
//
// One call at a time per HttpClient. Answers are untrusted: sizes are limited, anything malformed
// is an Error.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "net/http.h"
#include "rpc/codec.h"
#include "rpc/envelope.h"

namespace atl::rpc {

struct CallOptions {
  Codec codec = Codec::proto;
  net::Headers headers;                              // X-Access-Token, Authorization, ...
  std::optional<std::chrono::milliseconds> timeout;  // sent as Connect-Timeout-Ms
  std::size_t limit = 64 << 20;                      // of one message of the answer
};

// Errors: the server's, with its code; unavailable when the connection broke.
net::Task<Result<void>> unary(net::HttpClient& client, std::string path,
                              const google::protobuf::Message& in, google::protobuf::Message& out,
                              CallOptions options = {});

// A server stream that was opened. `client` outlives it and is busy until `next` said false or
// failed.
class ServerStream {
 public:
  // Sends the request and reads the head of the answer.
  static net::Task<Result<ServerStream>> open(net::HttpClient& client, std::string path,
                                              const google::protobuf::Message& in,
                                              CallOptions options = {});

  // True: `out` holds the next message. False: the stream ended well. Errors: the one that the
  // stream ended with; unavailable if it broke off.
  net::Task<Result<bool>> next(google::protobuf::Message& out);

 private:
  ServerStream(net::HttpClient& client, Codec codec, std::size_t limit)
      : codec_(codec), reader_(std::make_unique<EnvelopeReader>(client.body(), limit)) {}

  Codec codec_;
  std::unique_ptr<EnvelopeReader> reader_;
  bool ended_ = false;
};

}  // namespace atl::rpc
