// Bodies and queries of the control plane: everything that a client writes and the server decodes
// before it knows anything.
//
// The first byte chooses the decoder. Besides not crashing, what is accepted must keep its
// promises: bounds of numbers, names and values that a process can have, cursors that survive a
// round trip.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "api_server/decode.h"
#include "api_server/errors.h"
#include "api_server/query.h"
#include "api_server/routes.h"
#include "base/json.h"
#include "proxy/target.h"
#include "templates/catalog.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_create(std::string_view text, atl::api::ApiVersion version) {
  auto command = atl::api::decode_create(text, version);
  if (!command.ok()) {
    const atl::api::ApiError error =
        atl::api::to_api_error(command.error(), atl::api::Operation::start);
    require(error.status == 400 || error.status == 501);
    require(atl::parse_json(atl::api::encode(error)).ok());
    return;
  }
  require(command->timeout.count() >= 0);
  require(version == atl::api::ApiVersion::v1 || command->secure);
  require(command->allow_public_traffic || command->secure);
  require(atl::parse_json(command->network).ok());
  for (const auto& [name, value] : command->envs) {
    require(!name.empty() && name.find('=') == std::string::npos &&
            name.find('\0') == std::string::npos);
    require(value.find('\0') == std::string::npos);
  }
  for (char c : command->mask_request_host) require(c > ' ' && c < 127);
}

void check_list(std::string_view text) {
  static atl::templates::Catalog none("/nonexistent");
  atl::net::RequestHead head;
  head.target = "/v2/sandboxes?" + std::string(text);
  auto query = atl::api::decode_list_query(head, none);
  if (!query.ok()) return;
  require(query->limit >= 1 && query->limit <= 100);
  if (query->after) {
    auto again =
        atl::api::decode_cursor(atl::api::encode_cursor(*query->after, query->order), query->order);
    require(again.ok() && again->id == query->after->id);
  }
}

// A target that is not refused names a valid port and id; a cleaned path has nothing left to clean.
void check_target(std::string_view text) {
  atl::net::RequestHead head;
  const std::size_t line = text.find('\n');
  head.target = "/" + std::string(text.substr(0, line));
  if (line != std::string_view::npos) head.headers.add("Host", std::string(text.substr(line + 1)));
  const auto target = atl::proxy::find_target(head, {});
  if (const auto* sandbox = std::get_if<atl::proxy::ToSandbox>(&target)) {
    require(sandbox->port != 0 && atl::SandboxId::parse(sandbox->id.str()).has_value());
  }
  if (auto cleaned = atl::proxy::clean_path(head.path())) {
    require(cleaned->starts_with('/') && cleaned->find("//") == std::string::npos);
    require(cleaned->find("/../") == std::string::npos && !cleaned->ends_with("/.."));
  }
  (void)atl::api::match_route("GET", head.path());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      check_create(text, atl::api::ApiVersion::v1);
      break;
    case 1:
      check_create(text, atl::api::ApiVersion::v2);
      break;
    case 2:
      if (auto t = atl::api::decode_timeout(text); t.ok()) require(t->count() >= 0);
      if (auto t = atl::api::decode_connect(text); t.ok()) require(t->count() >= 0);
      if (auto t = atl::api::decode_refresh(text); t.ok())
        require(t->count() >= 0 && t->count() <= 3600);
      break;
    case 3:
      check_list(text);
      break;
    case 4:
      (void)atl::api::decode_metadata_filter(text).ok();
      (void)atl::api::decode_cursor(text, atl::engine::Order::newest_first).ok();
      break;
    case 5:
      check_target(text);
      break;
  }
  return 0;
}
