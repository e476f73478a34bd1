// Messages to bytes and back, in the two codecs of the protocol.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::rpc {

enum class Codec { json, proto };

// JSON input: unknown fields are ignored, both spellings of names, enums as names or numbers,
// base64 of either alphabet with or without padding. Errors: invalid_argument.
Result<void> decode(Codec codec, std::string_view bytes, google::protobuf::Message& into);
// JSON output: lowerCamelCase, default values left out. Errors: internal.
Result<std::string> encode(Codec codec, const google::protobuf::Message& message);

}  // namespace atl::rpc
