#include "base/json.h"

namespace atl {

Result<json::value> parse_json(std::string_view text) {
  boost::system::error_code ec;
  json::parse_options options;
  options.max_depth = 64;
  json::value value = json::parse(json::string_view(text.data(), text.size()), ec, {}, options);
  if (ec) return make_error(Errc::invalid_argument, "malformed JSON: " + ec.message());
  return value;
}

}  // namespace atl
