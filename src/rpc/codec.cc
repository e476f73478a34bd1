#include "rpc/codec.h"

#include <google/protobuf/util/json_util.h>

#include <climits>

#include "base/encoding.h"

namespace atl::rpc {
namespace {

namespace util = google::protobuf::util;

Result<void> decode_json(std::string_view bytes, google::protobuf::Message& into) {
  // An empty JSON document is not an object. The parser would take it for a message without fields.
  if (bytes.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return make_error(Errc::invalid_argument,
                      "unmarshal message: zero-length payload is not a valid JSON object");
  }
  if (!is_valid_utf8(bytes))
    return make_error(Errc::invalid_argument, "unmarshal message: the JSON is not UTF-8");
  util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = util::JsonStringToMessage(
      google::protobuf::StringPiece(bytes.data(), bytes.size()), &into, options);
  if (!status.ok()) {
    return make_error(Errc::invalid_argument,
                      "unmarshal message: " + std::string(status.message()));
  }
  return {};
}

}  // namespace

Result<void> decode(Codec codec, std::string_view bytes, google::protobuf::Message& into) {
  if (bytes.size() > INT_MAX)
    return make_error(Errc::resource_exhausted, "the message is too large");
  into.Clear();
  if (codec == Codec::json) return decode_json(bytes, into);
  if (!into.ParseFromArray(bytes.data(), int(bytes.size()))) {
    return make_error(Errc::invalid_argument, "unmarshal message: not a valid protobuf message");
  }
  return {};
}

Result<std::string> encode(Codec codec, const google::protobuf::Message& message) {
  std::string out;
  if (codec == Codec::proto) {
    if (!message.SerializeToString(&out))
      return make_error(Errc::internal, "the answer cannot be serialised");
    return out;
  }
  const auto status = util::MessageToJsonString(message, &out);
  if (!status.ok())
    return make_error(Errc::internal,
                      "the answer cannot be written as JSON: " + std::string(status.message()));
  return out;
}

}  // namespace atl::rpc
