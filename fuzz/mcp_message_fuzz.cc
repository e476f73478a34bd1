// What MCP clients send, patterns that models write, and what programs inside a sandbox print.
//
// The first byte chooses the reader. Besides not crashing: an answer can be made for every message
// and is JSON; a pattern that compiles matches in bounded time; a text that was cut is UTF-8.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/encoding.h"
#include "base/json.h"
#include "mcp/cut.h"
#include "mcp/glob.h"
#include "mcp/grep_output.h"
#include "mcp/lines.h"
#include "mcp/protocol/message.h"
#include "mcp/protocol/sse.h"
#include "mcp/schema.h"
#include "net/origin.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_messages(std::string_view text) {
  const atl::mcp::Incoming incoming = atl::mcp::parse_incoming(text);
  require(!incoming.messages.empty());
  for (const atl::mcp::Parsed& parsed : incoming.messages) {
    if (const auto* malformed = std::get_if<atl::mcp::Malformed>(&parsed)) {
      require(atl::parse_json(atl::json::serialize(atl::mcp::make_failure(*malformed))).ok());
      continue;
    }
    const auto& message = std::get<atl::mcp::Message>(parsed);
    require(message.kind == atl::mcp::Message::Kind::notification || !message.id.is_null());
    for (const atl::json::value& tool : atl::mcp::tool_definitions()) {
      (void)atl::mcp::check_arguments(tool.at("inputSchema").as_object(), message.params).ok();
    }
  }
}

void check_glob(std::string_view text) {
  const std::size_t line = text.find('\n');
  const auto glob = atl::mcp::Glob::compile(text.substr(0, line).substr(0, 200));
  const auto split = atl::mcp::split_literal_prefix(text.substr(0, line));
  require(split.rest.size() <= text.size());
  if (glob.ok() && line != std::string_view::npos) (void)glob->matches(text.substr(line + 1));
}

void check_texts(std::string_view text) {
  require(atl::is_valid_utf8(atl::mcp::cut_middle(atl::mcp::to_utf8(text), 20, "x")));
  atl::mcp::LinePicker lines(1, 3, 16);
  lines.feed(text.substr(0, text.size() / 2));
  lines.feed(text.substr(text.size() / 2));
  lines.finish();
  require(lines.lines() <= 3);
  (void)atl::mcp::looks_binary(text);
  (void)atl::mcp::mime_type_of(text);
  (void)atl::mcp::parse_grep(text);
  (void)atl::mcp::parse_find(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      check_messages(text);
      break;
    case 1:
      check_glob(text);
      break;
    case 2:
      check_texts(text);
      break;
    case 3: {
      atl::mcp::SseReader reader(1000);
      (void)reader.feed(text).ok();
      (void)atl::net::is_allowed_origin(text, "atoll.test");
      break;
    }
  }
  return 0;
}
