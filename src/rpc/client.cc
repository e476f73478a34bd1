#include "rpc/client.h"

#include "rpc/error_body.h"

namespace atl::rpc {
namespace {

constexpr std::size_t kErrorBodyLimit = 1 << 20;

net::RequestHead make_head(std::string path, const char* type_prefix, const CallOptions& options) {
  net::RequestHead head;
  head.method = "POST";
  head.target = std::move(path);
  head.headers = options.headers;
  head.headers.set("Content-Type",
                   std::string(type_prefix) + (options.codec == Codec::json ? "json" : "proto"));
  head.headers.set("Connect-Protocol-Version", "1");
  if (options.timeout)
    head.headers.set("Connect-Timeout-Ms", std::to_string(options.timeout->count()));
  return head;
}

}  // namespace

net::Task<Result<void>> unary(net::HttpClient& client, std::string path,
                              const google::protobuf::Message& in, google::protobuf::Message& out,
                              CallOptions options) {
  ATOLL_CO_TRY_ASSIGN(std::string body, encode(options.codec, in));
  auto call = client.request(make_head(std::move(path), "application/", options), std::move(body),
                             options.limit);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient::Answer answer, co_await std::move(call));
  if (answer.head.status != 200) co_return parse_error_body(answer.head.status, answer.body);
  auto decoded = decode(options.codec, answer.body, out);
  if (!decoded.ok())
    co_return make_error(Errc::internal, "unreadable answer: " + decoded.error().message);
  co_return Result<void>();
}

net::Task<Result<ServerStream>> ServerStream::open(net::HttpClient& client, std::string path,
                                                   const google::protobuf::Message& in,
                                                   CallOptions options) {
  ATOLL_CO_TRY_ASSIGN(std::string payload, encode(options.codec, in));
  const std::string body = make_envelope(0, payload);
  const net::RequestHead head = make_head(std::move(path), "application/connect+", options);
  auto writing = client.write_request(head, body);
  ATOLL_CO_TRY(co_await std::move(writing));
  auto read = client.read_head();
  ATOLL_CO_TRY_ASSIGN(net::ResponseHead answer, co_await std::move(read));
  if (answer.status != 200) {
    auto rest = client.body().read_all(kErrorBodyLimit);
    auto text = co_await std::move(rest);
    co_return parse_error_body(answer.status,
                               text.ok() ? std::string_view(*text) : std::string_view());
  }
  if (!answer.headers.get("Content-Type").starts_with("application/connect+")) {
    co_return make_error(Errc::internal, "unexpected content type of a stream");
  }
  co_return ServerStream(client, options.codec, options.limit);
}

net::Task<Result<bool>> ServerStream::next(google::protobuf::Message& out) {
  if (ended_) co_return false;
  auto read = reader_->next();
  auto envelope = co_await std::move(read);
  if (!envelope.ok()) {
    ended_ = true;
    co_return std::move(envelope).error();
  }
  if (!envelope->has_value()) {
    ended_ = true;
    co_return make_error(Errc::unavailable, "the stream broke off without an end");
  }
  const Envelope& message = **envelope;
  if (message.flags & kFlagCompressed)
    co_return make_error(Errc::internal, "unexpected compression of a message");
  if (message.flags & kFlagEndStream) {
    ended_ = true;
    // The body's last chunk follows; reading past it leaves the connection ready for the next call.
    auto rest = reader_->next();
    const bool at_end = (co_await std::move(rest)).ok();
    ATOLL_CO_TRY(parse_end_stream(message.payload));
    if (!at_end) co_return make_error(Errc::unavailable, "the stream broke off after its end");
    co_return false;
  }
  if (message.payload.empty()) {
    out.Clear();
    co_return true;
  }
  auto decoded = decode(codec_, message.payload, out);
  if (!decoded.ok())
    co_return make_error(Errc::internal,
                         "unreadable message of a stream: " + decoded.error().message);
  co_return true;
}

}  // namespace atl::rpc
