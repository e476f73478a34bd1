// Lines as a runner could send them and bodies as a client could: what the scanner takes for JSON,
// Boost.JSON takes too, and the other way round; texts it reads are the same.
#include <boost/json.hpp>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "agent/interpreter/lines.h"
#include "agent/interpreter/request.h"

namespace {

constexpr int kDepth = 100;

void require(bool holds) {
  if (!holds) std::abort();
}

void compare(std::string_view text) {
  namespace json = boost::json;
  using namespace atl::agent::interpreter;
  JsonMembers members;
  const JsonFault fault = scan_object(text, JsonForm::request, 16, members);
  boost::system::error_code ec;
  json::parse_options options;
  options.max_depth = kDepth;
  const json::value value =
      json::parse(json::string_view(text.data(), text.size()), ec, {}, options);
  if (ec == json::error::too_deep || ec == json::error::exponent_overflow) return;
  require((fault == JsonFault::malformed) == bool(ec) || fault == JsonFault::too_many_members);
  if (fault != JsonFault::none) return;
  std::map<std::string, std::string_view> last;  // of two members with one name the last one counts
  for (const JsonMember& member : members)
    last[*json_text("\"" + std::string(member.key) + "\"")] = member.value;
  require(last.size() == value.as_object().size());
  for (const auto& [key, raw] : last) {
    const json::value& same = value.as_object().at(key);
    require(same.is_string() == is_json_string(raw));
    if (same.is_string()) require(std::string_view(same.as_string()) == *json_text(raw));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl::agent::interpreter;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  compare(text);
  JsonMembers scratch;
  if (read_line(text, scratch).type != LineType::invalid) {
    for (const char c : text) require(static_cast<unsigned char>(c) < 0x80);
  }
  const auto execute = parse_execute(text);
  require(execute.request.has_value() == execute.detail.empty());
  if (execute.request) {
    const std::string& line = execute.request->line;
    require(line.find('\n') == line.size() - 1);  // one line, whatever was in the body
    boost::system::error_code ec;
    (void)boost::json::parse(line, ec);
    require(!ec || ec == boost::json::error::too_deep ||
            ec == boost::json::error::exponent_overflow);
  } else {
    boost::system::error_code ec;
    (void)boost::json::parse(execute.detail, ec);
    require(!ec || ec == boost::json::error::too_deep ||
            ec == boost::json::error::exponent_overflow);
  }
  (void)parse_create(text);
  boost::system::error_code ec;
  const auto quoted = boost::json::parse(json_quote(text), ec);
  require(!ec && quoted.is_string());
  return 0;
}
