#include "workspace/service.h"

#include <charconv>

#include "api_server/fields.h"
#include "base/encoding.h"
#include "proxy/inside.h"

namespace atl::workspace {
namespace {

using api::BodyMode;
using api::Reply;
using api::ServiceCall;

enum Action {
  kList,
  kShow,
  kConfigure,
  kRemoveWorkspace,
  kEntries,
  kRead,
  kWrite,
  kRemove,
  kRestore,
  kSave,
  kLoad
};

constexpr api::ServiceRoute kRoutes[] = {
    {"GET", "/workspaces", kList},
    {"GET", "/workspaces/{}", kShow},
    {"PUT", "/workspaces/{}", kConfigure},
    {"DELETE", "/workspaces/{}", kRemoveWorkspace},
    {"GET", "/workspaces/{}/entries", kEntries},
    {"GET", "/workspaces/{}/files", kRead},
    {"PUT", "/workspaces/{}/files", kWrite, api::Auth::team, BodyMode::streamed},
    {"DELETE", "/workspaces/{}/files", kRemove},
    {"POST", "/workspaces/{}/restore", kRestore},
    {"POST", "/workspaces/{}/save", kSave},
    {"POST", "/workspaces/{}/load", kLoad},
};

constexpr std::size_t kPiece = 256 << 10;
constexpr std::size_t kMaxEntries = 10'000;
constexpr std::size_t kMaxNames = 100;
constexpr std::chrono::seconds kResumed{300};
constexpr std::chrono::seconds kListPatience{1};  // with a workspace that is busy
// A client that sends no byte of its content for so long is not waited for.
constexpr std::chrono::seconds kSilence{120};

json::object file_json(const File& file) {
  return {{"path", file.path},
          {"size", file.size},
          {"version", file.version},
          {"sha256", file.sha256},
          {"modifiedAt", to_rfc3339(file.modified_at)}};
}

json::array files_json(const std::vector<File>& files) {
  json::array out;
  out.reserve(files.size());
  for (const File& file : files) out.push_back(file_json(file));
  return out;
}

json::object info_json(const Info& info) {
  return {{"name", info.name},
          {"createdAt", to_rfc3339(info.created_at)},
          {"bytes", info.usage.bytes},
          {"files", info.usage.files},
          {"versions", info.usage.versions},
          {"maxBytes", info.quota.max_bytes},
          {"maxFiles", info.quota.max_files},
          {"keepVersions", info.quota.keep_versions}};
}

Reply copied_reply(const Copied& copied) {
  json::array skipped;
  for (const Skipped& one : copied.skipped)
    skipped.push_back(json::object{{"path", one.path}, {"reason", one.reason}});
  return api::json_reply(
      200, json::object{{"files", files_json(copied.files)}, {"skipped", std::move(skipped)}});
}

Result<std::string> required_query(const ServiceCall& call, std::string_view name) {
  auto value = call.exchange.request.query_param(name);
  if (!value || value->empty())
    return api::validation("query parameter '" + std::string(name) + "' is missing");
  return std::move(*value);
}

Result<bool> flag_query(const ServiceCall& call, std::string_view name) {
  const auto value = call.exchange.request.query_param(name);
  if (!value || *value == "false" || *value == "0") return false;
  if (*value == "true" || *value == "1" || value->empty()) return true;
  return api::validation("'" + std::string(name) + "' must be true or false");
}

Result<std::size_t> limit_query(const ServiceCall& call, std::size_t otherwise, std::size_t most) {
  const auto text = call.exchange.request.query_param("limit");
  if (!text) return otherwise;
  std::size_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, ec] = std::from_chars(text->data(), end, value);
  if (ec != std::errc() || stop != end || value < 1 || value > most)
    return api::validation("'limit' must be an integer from 1 to " + std::to_string(most));
  return value;
}

// Where the page before ended, or nothing.
Result<std::string> token_query(const ServiceCall& call) {
  const auto token = call.exchange.request.query_param("nextToken");
  if (!token || token->empty()) return std::string();
  auto decoded = base64_decode(*token);
  if (!decoded || decoded->empty()) return api::validation("invalid nextToken");
  return std::move(*decoded);
}

std::string token_of(std::string_view last) {
  std::string token = base64_encode(last);
  for (char& c : token) {
    if (c == '+') c = '-';
    if (c == '/') c = '_';
  }
  while (!token.empty() && token.back() == '=') token.pop_back();
  return token;
}

Result<std::optional<std::uint64_t>> count_field(const json::object& object,
                                                 std::string_view name) {
  const json::value* value = api::present(object, name);
  if (value == nullptr) return std::optional<std::uint64_t>();
  boost::system::error_code ec;
  if (value->is_number()) {
    const auto number = value->to_number<std::uint64_t>(ec);
    if (!ec) return std::optional(number);
  }
  return api::wrong_type(name, "a non-negative integer");
}

Result<std::string> optional_string(const json::object& object, std::string_view name) {
  if (api::present(object, name) == nullptr) return std::string();
  return api::required_string(object, name);
}

net::Task<Result<std::size_t>> read_body(net::BodyReader& body, std::span<char> into) {
  auto reading = body.read_some(into);
  co_return co_await std::move(reading);
}

net::Task<Result<void>> send_content(net::ResponseWriter& response, Reader& reader) {
  const File& file = reader.file();
  net::Headers headers{{"Content-Type", "application/octet-stream"},
                       {"ETag", "\"" + file.sha256 + "\""},
                       {"X-Version", file.version},
                       {"X-Modified-At", to_rfc3339(file.modified_at)},
                       {"X-Content-Type-Options", "nosniff"},
                       {"Access-Control-Allow-Origin", "*"}};
  auto starting = response.start(200, std::move(headers), file.size);
  ATOLL_CO_TRY(co_await std::move(starting));
  std::string buffer(kPiece, '\0');
  for (;;) {
    auto reading = reader.read_some(buffer);
    ATOLL_CO_TRY_ASSIGN(const std::size_t count, co_await std::move(reading));
    if (count == 0) break;
    auto writing = response.write(std::string_view(buffer).substr(0, count));
    ATOLL_CO_TRY(co_await std::move(writing));
  }
  auto finishing = response.finish();
  co_return co_await std::move(finishing);
}

}  // namespace

std::span<const api::ServiceRoute> WorkspaceService::routes() const { return kRoutes; }

net::Task<Result<Reply>> WorkspaceService::answer(ServiceCall& call) {
  switch (call.route.action) {
    case kList:
      return list_workspaces(call);
    case kShow:
      return show(call);
    case kConfigure:
      return configure(call);
    case kRemoveWorkspace:
      return remove_workspace(call);
    case kEntries:
      return entries(call);
    case kRead:
      return read(call);
    case kWrite:
      return write(call);
    case kRemove:
      return remove(call);
    case kRestore:
      return restore(call);
    case kSave:
      return save(call);
    default:
      return load(call);
  }
}

WorkspaceService::Answer WorkspaceService::list_workspaces(ServiceCall& call) {
  ATOLL_CO_TRY_ASSIGN(const std::size_t limit, limit_query(call, kMaxNames, kMaxNames));
  ATOLL_CO_TRY_ASSIGN(std::string after, token_query(call));
  const std::string team = call.who.caller.team_id;
  auto listing = workspaces_.names(team, std::move(after), limit);
  ATOLL_CO_TRY_ASSIGN(const NamePage page, co_await std::move(listing));
  json::array out;
  for (const std::string& name : page.names) {
    auto asking = workspaces_.info(team, name, kListPatience);
    auto info = co_await std::move(asking);
    if (info.ok()) {
      out.push_back(info_json(*info));
    } else if (info.error().code == Errc::deadline_exceeded) {
      out.push_back(json::object{{"name", name}});  // the others do not wait for it
    } else if (info.error().code != Errc::not_found) {
      co_return std::move(info).error();
    }
  }
  Reply reply = api::json_reply(200, out);
  if (page.more && !page.names.empty())
    reply.headers.add("X-Next-Token", token_of(page.names.back()));
  co_return reply;
}

WorkspaceService::Answer WorkspaceService::show(ServiceCall& call) {
  auto asking = workspaces_.info(call.who.caller.team_id, call.params[0]);
  ATOLL_CO_TRY_ASSIGN(const Info info, co_await std::move(asking));
  co_return api::json_reply(200, info_json(info));
}

WorkspaceService::Answer WorkspaceService::configure(ServiceCall& call) {
  ATOLL_CO_TRY_ASSIGN(const json::object body, api::parse_object(call.body, api::Body::optional));
  QuotaChange change;
  ATOLL_CO_TRY_ASSIGN(change.max_bytes, count_field(body, "maxBytes"));
  ATOLL_CO_TRY_ASSIGN(change.max_files, count_field(body, "maxFiles"));
  ATOLL_CO_TRY_ASSIGN(change.keep_versions, count_field(body, "keepVersions"));
  auto setting = workspaces_.configure(call.who.caller.team_id, call.params[0], change);
  ATOLL_CO_TRY_ASSIGN(const Info info, co_await std::move(setting));
  co_return api::json_reply(200, info_json(info));
}

WorkspaceService::Answer WorkspaceService::remove_workspace(ServiceCall& call) {
  auto removing = workspaces_.remove_workspace(call.who.caller.team_id, call.params[0]);
  ATOLL_CO_TRY(co_await std::move(removing));
  co_return api::no_content();
}

WorkspaceService::Answer WorkspaceService::entries(ServiceCall& call) {
  EntryQuery query;
  query.prefix = call.exchange.request.query_param("prefix").value_or("/");
  ATOLL_CO_TRY_ASSIGN(query.all_versions, flag_query(call, "versions"));
  ATOLL_CO_TRY_ASSIGN(query.limit, limit_query(call, 1000, kMaxEntries));
  ATOLL_CO_TRY_ASSIGN(query.after, token_query(call));
  auto listing = workspaces_.entries(call.who.caller.team_id, call.params[0], std::move(query));
  ATOLL_CO_TRY_ASSIGN(const EntryPage page, co_await std::move(listing));
  if (page.items.empty()) {
    // Nothing there is one thing, no workspace another.
    auto asking = workspaces_.info(call.who.caller.team_id, call.params[0]);
    ATOLL_CO_TRY(co_await std::move(asking));
  }
  Reply reply = api::json_reply(200, files_json(page.items));
  if (!page.next.empty()) reply.headers.add("X-Next-Token", token_of(page.next));
  co_return reply;
}

WorkspaceService::Answer WorkspaceService::read(ServiceCall& call) {
  ATOLL_CO_TRY_ASSIGN(std::string path, required_query(call, "path"));
  std::string version = call.exchange.request.query_param("version").value_or("");
  auto opening = workspaces_.read(call.who.caller.team_id, call.params[0], std::move(path),
                                  std::move(version));
  ATOLL_CO_TRY_ASSIGN(const std::unique_ptr<Reader> reader, co_await std::move(opening));
  auto sending = send_content(call.exchange.response, *reader);
  ATOLL_CO_TRY(co_await std::move(sending));
  co_return Reply::already_sent();
}

WorkspaceService::Answer WorkspaceService::write(ServiceCall& call) {
  ATOLL_CO_TRY_ASSIGN(std::string path, required_query(call, "path"));
  net::BodyReader& body = call.exchange.body;
  call.exchange.stream.set_read_timeout(kSilence);
  auto writing = workspaces_.write(
      call.who.caller.team_id, call.params[0], std::move(path),
      [&body](std::span<char> into) { return read_body(body, into); }, body.content_length());
  auto written = co_await std::move(writing);
  call.exchange.stream.set_read_timeout(std::nullopt);
  if (!written.ok()) co_return std::move(written).error();
  co_return api::json_reply(201, file_json(*written));
}

WorkspaceService::Answer WorkspaceService::remove(ServiceCall& call) {
  ATOLL_CO_TRY_ASSIGN(std::string path, required_query(call, "path"));
  ATOLL_CO_TRY_ASSIGN(const bool recursive, flag_query(call, "recursive"));
  if (recursive) {
    auto removing =
        workspaces_.remove_folder(call.who.caller.team_id, call.params[0], std::move(path));
    ATOLL_CO_TRY(co_await std::move(removing));
  } else {
    auto removing = workspaces_.remove(call.who.caller.team_id, call.params[0], std::move(path));
    ATOLL_CO_TRY(co_await std::move(removing));
  }
  co_return api::no_content();
}

WorkspaceService::Answer WorkspaceService::restore(ServiceCall& call) {
  ATOLL_CO_TRY_ASSIGN(const json::object body, api::parse_object(call.body, api::Body::required));
  ATOLL_CO_TRY_ASSIGN(std::string path, api::required_string(body, "path"));
  ATOLL_CO_TRY_ASSIGN(std::string version, api::required_string(body, "version"));
  auto restoring = workspaces_.restore(call.who.caller.team_id, call.params[0], std::move(path),
                                       std::move(version));
  ATOLL_CO_TRY_ASSIGN(const File file, co_await std::move(restoring));
  co_return api::json_reply(201, file_json(file));
}

net::Task<Result<client::Inside>> WorkspaceService::sandbox(engine::Caller caller,
                                                            std::string text) {
  const auto id = SandboxId::parse(text);
  if (!id) co_return api::validation("'sandboxID' is not the id of a sandbox");
  // It never ends earlier by that.
  auto connecting = engine_.connect(std::move(caller), *id, kResumed);
  if (auto connected = co_await std::move(connecting); !connected.ok()) {
    Error error = std::move(connected).error();
    if (error.code == Errc::not_found)
      error.message += ". Save and load work on the server that has the sandbox";
    co_return error;
  }
  co_return proxy::inside_of(engine_, *id);
}

WorkspaceService::Answer WorkspaceService::save(ServiceCall& call) {
  ATOLL_CO_TRY_ASSIGN(const json::object body, api::parse_object(call.body, api::Body::required));
  ATOLL_CO_TRY_ASSIGN(std::string id, api::required_string(body, "sandboxID"));
  ATOLL_CO_TRY_ASSIGN(std::string from, api::required_string(body, "sandboxPath"));
  ATOLL_CO_TRY_ASSIGN(std::string to, optional_string(body, "workspacePath"));
  auto finding = sandbox(call.who.caller, std::move(id));
  ATOLL_CO_TRY_ASSIGN(client::Inside inside, co_await std::move(finding));
  auto saving = workspaces_.save_all(call.who.caller.team_id, call.params[0], std::move(inside),
                                     std::move(from), std::move(to));
  ATOLL_CO_TRY_ASSIGN(const Copied copied, co_await std::move(saving));
  co_return copied_reply(copied);
}

WorkspaceService::Answer WorkspaceService::load(ServiceCall& call) {
  ATOLL_CO_TRY_ASSIGN(const json::object body, api::parse_object(call.body, api::Body::required));
  ATOLL_CO_TRY_ASSIGN(std::string id, api::required_string(body, "sandboxID"));
  ATOLL_CO_TRY_ASSIGN(std::string from, api::required_string(body, "workspacePath"));
  ATOLL_CO_TRY_ASSIGN(std::string to, optional_string(body, "sandboxPath"));
  ATOLL_CO_TRY_ASSIGN(std::string version, optional_string(body, "version"));
  auto finding = sandbox(call.who.caller, std::move(id));
  ATOLL_CO_TRY_ASSIGN(client::Inside inside, co_await std::move(finding));
  auto loading = workspaces_.load_all(call.who.caller.team_id, call.params[0], std::move(from),
                                      std::move(version), std::move(inside), std::move(to));
  ATOLL_CO_TRY_ASSIGN(const Copied copied, co_await std::move(loading));
  co_return copied_reply(copied);
}

}  // namespace atl::workspace
