// A request passes: path, HTTP method, content type (which fixes the codec), protocol version,
// timeout, encodings, then the handler. Failures up to the content type are plain HTTP statuses;
// later ones are errors of the protocol: a JSON body for unary calls, a 200 with an end-of-stream
// envelope for streams.
#include "rpc/connect.h"

#include <charconv>

#include "rpc/call_race.h"
#include "rpc/envelope.h"
#include "rpc/error_body.h"

namespace atl::rpc {
namespace {

using google::protobuf::Message;

enum class Kind { unary, server_stream, client_stream };

struct ContentType {
  Codec codec;
  bool streaming;
};

std::optional<ContentType> parse_content_type(std::string_view value) {
  const std::string_view media = value.substr(0, value.find(';'));
  const std::size_t end = media.find_last_not_of(" \t");
  const std::string_view type =
      end == std::string_view::npos ? std::string_view() : media.substr(0, end + 1);
  if (net::iequals(type, "application/json")) return ContentType{Codec::json, false};
  if (net::iequals(type, "application/proto")) return ContentType{Codec::proto, false};
  if (net::iequals(type, "application/connect+json")) return ContentType{Codec::json, true};
  if (net::iequals(type, "application/connect+proto")) return ContentType{Codec::proto, true};
  return std::nullopt;
}

std::string unary_type(Codec codec) {
  return codec == Codec::json ? "application/json" : "application/proto";
}
// Compared literally by one client: no charset.
std::string stream_type(Codec codec) {
  return codec == Codec::json ? "application/connect+json" : "application/connect+proto";
}

Result<void> check_encoding(const net::Headers& headers, std::string_view name) {
  const std::string_view encoding = headers.get(name);
  if (encoding.empty() || net::iequals(encoding, "identity")) return {};
  return make_error(Errc::unimplemented, "unknown compression \"" + std::string(encoding) +
                                             "\": supported encodings are identity");
}

Result<void> check_protocol(const net::Headers& headers) {
  const auto version = headers.find("Connect-Protocol-Version");
  if (version && *version != "1") {
    return make_error(Errc::invalid_argument, "Connect-Protocol-Version must be \"1\": got \"" +
                                                  std::string(*version) + "\"");
  }
  ATOLL_TRY(check_encoding(headers, "Content-Encoding"));
  return check_encoding(headers, "Connect-Content-Encoding");
}

// An answer that cannot be sent has nobody to be told about: the connection is broken and ends.
void ignore(const Result<void>&) {}

net::Task<void> send_unary_error(net::Exchange& exchange, const Error& error) {
  net::Headers headers{{"Content-Type", "application/json"}};
  ignore(co_await exchange.response.send(http_status(error.code), std::move(headers),
                                         error_body(error)));
}

// A stream that has sent nothing yet is answered in one piece.
net::Task<void> end_stream(net::Exchange& exchange, Codec codec, const Result<void>& outcome) {
  const std::string last = make_envelope(kFlagEndStream, end_stream_body(outcome));
  if (!exchange.response.started()) {
    net::Headers headers{{"Content-Type", stream_type(codec)}};
    ignore(co_await exchange.response.send(200, std::move(headers), last));
    co_return;
  }
  if ((co_await exchange.response.write(last)).ok()) ignore(co_await exchange.response.finish());
}

class Sink final : public MessageSink {
 public:
  explicit Sink(CallContext& call) : call_(call) {}

  net::Task<Result<void>> send(const Message& message) override {
    ATOLL_CO_TRY_ASSIGN(std::string payload, encode(call_.codec, message));
    const std::string envelope = make_envelope(0, payload);
    writing_ = true;
    if (!call_.exchange.response.started()) {
      net::Headers headers{{"Content-Type", stream_type(call_.codec)}};
      auto start = call_.exchange.response.start(200, std::move(headers), std::nullopt);
      ATOLL_CO_TRY(co_await std::move(start));
    }
    auto write = call_.exchange.response.write(envelope);
    ATOLL_CO_TRY(co_await std::move(write));
    writing_ = false;
    co_return Result<void>();
  }

  // A send was cancelled or failed half-way: nothing readable can follow.
  bool broken() const { return writing_; }

 private:
  CallContext& call_;
  bool writing_ = false;
};

class Source final : public MessageSource {
 public:
  Source(CallContext& call, std::size_t limit)
      : codec_(call.codec), reader_(call.exchange.body, limit) {}

  net::Task<Result<bool>> next(Message& into) override {
    auto read = reader_.next();
    ATOLL_CO_TRY_ASSIGN(std::optional<Envelope> envelope, co_await std::move(read));
    if (!envelope) co_return false;
    if (envelope->flags & kFlagCompressed) {
      co_return make_error(Errc::internal,
                           "protocol error: sent compressed message without compression support");
    }
    if (envelope->flags != 0) {
      co_return make_error(Errc::invalid_argument, "protocol error: invalid envelope flags " +
                                                       std::to_string(envelope->flags));
    }
    // Unlike a unary body, an empty envelope is a message without fields.
    if (envelope->payload.empty()) {
      into.Clear();
      co_return true;
    }
    ATOLL_CO_TRY(decode(codec_, envelope->payload, into));
    co_return true;
  }

 private:
  Codec codec_;
  EnvelopeReader reader_;
};

// Server streams take exactly one message.
net::Task<Result<void>> read_only_message(Source& source, Message& into) {
  auto first = source.next(into);
  ATOLL_CO_TRY_ASSIGN(const bool got, co_await std::move(first));
  if (!got) co_return make_error(Errc::unimplemented, "unary request has zero messages");
  const std::unique_ptr<Message> extra(into.New());
  auto second = source.next(*extra);
  ATOLL_CO_TRY_ASSIGN(const bool more, co_await std::move(second));
  if (more) co_return make_error(Errc::unimplemented, "unary request has multiple messages");
  co_return Result<void>();
}

Error past_deadline() { return make_error(Errc::deadline_exceeded, "context deadline exceeded"); }

bool is_past(const CallContext& call) {
  return call.deadline && std::chrono::steady_clock::now() >= *call.deadline;
}

}  // namespace

struct Router::Method {
  Kind kind;
  std::unique_ptr<Message> in;
  std::unique_ptr<Message> out;
  Unary unary;
  ServerStream server_stream;
  ClientStream client_stream;
};

Result<std::optional<std::chrono::milliseconds>> parse_timeout(const net::Headers& headers) {
  const auto text = headers.find("Connect-Timeout-Ms");
  if (!text) return std::optional<std::chrono::milliseconds>();
  std::int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, ec] = std::from_chars(text->data(), end, value);
  const bool digits = text->find_first_not_of("0123456789") == std::string_view::npos;
  if (text->empty() || text->size() > 10 || !digits || ec != std::errc() || stop != end) {
    return make_error(Errc::invalid_argument, "protocol error: invalid Connect-Timeout-Ms \"" +
                                                  std::string(text->substr(0, 40)) + "\"");
  }
  if (value == 0) return std::optional<std::chrono::milliseconds>();
  return std::optional(std::chrono::milliseconds(value));
}

std::chrono::seconds keepalive_interval(const net::Headers& headers) {
  const std::string_view text = headers.get("Keepalive-Ping-Interval");
  int value = 0;
  const auto [stop, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || stop != text.data() + text.size() || value <= 0)
    return std::chrono::seconds(90);
  return std::chrono::seconds(value);
}

net::Task<void> send_error(net::Exchange& exchange, const Error& error) {
  const auto type = parse_content_type(exchange.request.headers.get("Content-Type"));
  if (type && type->streaming) {
    const Result<void> outcome = error;
    co_await end_stream(exchange, type->codec, outcome);
  } else {
    co_await send_unary_error(exchange, error);
  }
}

net::Task<Result<void>> while_connected(CallContext& call, net::Task<Result<void>> part) {
  Result<void> result;
  const Ended ended =
      co_await race(std::move(part), result, call.exchange.stream, WatchPeer::yes, call.deadline);
  if (ended == Ended::peer_closed) co_return make_error(Errc::canceled, "the client went away");
  if (ended == Ended::deadline) co_return past_deadline();
  co_return result;
}

net::Task<bool> Router::handle(net::Exchange& exchange) {
  const std::string path(exchange.request.path());
  const auto found = methods_.find(path);
  if (found == methods_.end()) {
    const std::size_t slash = path.rfind('/');
    if (slash == 0 || slash == std::string::npos) co_return false;
    const std::string service = path.substr(0, slash + 1);
    const auto near = methods_.lower_bound(service);
    if (near == methods_.end() || !near->first.starts_with(service)) co_return false;
    net::Headers headers{{"Content-Type", "application/json"}};
    const Error error = make_error(Errc::unimplemented, "unknown procedure " + path);
    ignore(co_await exchange.response.send(404, std::move(headers), error_body(error)));
    co_return true;
  }
  // Held: a handler may outlive a router that is being replaced.
  const std::shared_ptr<Method> method = found->second;
  if (exchange.request.method != "POST") {
    ignore(co_await exchange.response.send(405, {{"Allow", "POST"}}, ""));
    co_return true;
  }
  const bool streaming = method->kind != Kind::unary;
  const auto type = parse_content_type(exchange.request.headers.get("Content-Type"));
  if (!type || type->streaming != streaming) {
    const std::string accepted = streaming ? "application/connect+json, application/connect+proto"
                                           : "application/json, application/proto";
    ignore(co_await exchange.response.send(415, {{"Accept-Post", accepted}}, ""));
    co_return true;
  }
  CallContext call{exchange, type->codec, std::nullopt, std::nullopt};
  auto checked = check_protocol(exchange.request.headers);
  auto timeout = parse_timeout(exchange.request.headers);
  if (checked.ok() && !timeout.ok()) checked = timeout.error();
  if (!checked.ok()) {
    co_await send_error(exchange, checked.error());
    co_return true;
  }
  call.timeout = *timeout;
  if (call.timeout) call.deadline = std::chrono::steady_clock::now() + *call.timeout;
  switch (method->kind) {
    case Kind::unary:
      co_await run_unary(call, *method);
      break;
    case Kind::server_stream:
      co_await run_server_stream(call, *method);
      break;
    case Kind::client_stream:
      co_await run_client_stream(call, *method);
      break;
  }
  co_return true;
}

net::Task<void> Router::run_unary(CallContext& call, const Method& method) {
  auto body = co_await call.exchange.body.read_all(limits_.unary_body);
  if (!body.ok()) {
    co_await send_unary_error(call.exchange, body.error());
    co_return;
  }
  const std::unique_ptr<Message> in(method.in->New());
  const std::unique_ptr<Message> out(method.out->New());
  Result<void> result = decode(call.codec, *body, *in);
  body->clear();
  body->shrink_to_fit();
  if (result.ok()) {
    auto running = method.unary(call, *in, *out);
    result = co_await std::move(running);
  }
  if (call.exchange.response.started()) co_return;  // the handler answered by itself
  if (!result.ok()) {
    co_await send_unary_error(call.exchange, result.error());
    co_return;
  }
  auto bytes = encode(call.codec, *out);
  if (!bytes.ok()) {
    co_await send_unary_error(call.exchange, bytes.error());
    co_return;
  }
  net::Headers headers{{"Content-Type", unary_type(call.codec)}};
  ignore(co_await call.exchange.response.send(200, std::move(headers), *std::move(bytes)));
}

net::Task<void> Router::run_server_stream(CallContext& call, const Method& method) {
  const std::unique_ptr<Message> in(method.in->New());
  Source source(call, limits_.envelope);
  Result<void> outcome = co_await read_only_message(source, *in);
  Sink sink(call);
  if (outcome.ok()) {
    auto running = method.server_stream(call, *in, sink);
    const Ended ended = co_await race(std::move(running), outcome, call.exchange.stream,
                                      WatchPeer::yes, call.deadline);
    if (ended == Ended::peer_closed || sink.broken()) {
      call.exchange.response.abort();
      co_return;
    }
    // A call that ends in the very moment of its deadline has exceeded it: a clean end would hide
    // that it was cut short.
    if (ended == Ended::deadline || (outcome.ok() && is_past(call))) outcome = past_deadline();
  }
  co_await end_stream(call.exchange, call.codec, outcome);
}

net::Task<void> Router::run_client_stream(CallContext& call, const Method& method) {
  const std::unique_ptr<Message> out(method.out->New());
  Source source(call, limits_.envelope);
  Result<void> outcome;
  auto running = method.client_stream(call, source, *out);
  const Ended ended = co_await race(std::move(running), outcome, call.exchange.stream,
                                    WatchPeer::no, call.deadline);
  if (ended == Ended::deadline) outcome = past_deadline();
  if (outcome.ok()) {
    Sink sink(call);
    outcome = co_await sink.send(*out);
    if (sink.broken()) {
      call.exchange.response.abort();
      co_return;
    }
  }
  co_await end_stream(call.exchange, call.codec, outcome);
}

void Router::add_unary(std::string path, std::unique_ptr<Message> in, std::unique_ptr<Message> out,
                       Unary fn) {
  auto method = std::make_shared<Method>();
  method->kind = Kind::unary;
  method->in = std::move(in);
  method->out = std::move(out);
  method->unary = std::move(fn);
  methods_[std::move(path)] = std::move(method);
}

void Router::add_server_stream(std::string path, std::unique_ptr<Message> in, ServerStream fn) {
  auto method = std::make_shared<Method>();
  method->kind = Kind::server_stream;
  method->in = std::move(in);
  method->server_stream = std::move(fn);
  methods_[std::move(path)] = std::move(method);
}

void Router::add_client_stream(std::string path, std::unique_ptr<Message> in,
                               std::unique_ptr<Message> out, ClientStream fn) {
  auto method = std::make_shared<Method>();
  method->kind = Kind::client_stream;
  method->in = std::move(in);
  method->out = std::move(out);
  method->client_stream = std::move(fn);
  methods_[std::move(path)] = std::move(method);
}

}  // namespace atl::rpc
