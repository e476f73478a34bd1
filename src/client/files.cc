#include "client/files.h"

#include "agent/filesystem.pb.h"
#include "base/encoding.h"
#include "base/json.h"
#include "client/agent_call.h"

namespace atl::client {
namespace {

namespace pb = ::filesystem;

constexpr std::size_t kPiece = 256 << 10;
constexpr std::size_t kMaxRefusal = 64 << 10;
constexpr std::size_t kMaxEntries = 16 << 20;  // bytes of what an upload answers
// A sandbox that takes or gives no byte for so long is not waited for.
constexpr std::chrono::milliseconds kSilence{120'000};

EntryType type_of(pb::FileType type) {
  switch (type) {
    case pb::FILE_TYPE_FILE:
      return EntryType::file;
    case pb::FILE_TYPE_DIRECTORY:
      return EntryType::directory;
    case pb::FILE_TYPE_SYMLINK:
      return EntryType::symlink;
    default:
      return EntryType::other;
  }
}

Entry entry_of(const pb::EntryInfo& info) {
  Entry entry;
  entry.name = info.name();
  entry.path = info.path();
  entry.type = type_of(info.type());
  entry.size = info.size() > 0 ? std::uint64_t(info.size()) : 0;
  entry.mode = info.mode();
  entry.permissions = info.permissions();
  entry.owner = info.owner();
  entry.group = info.group();
  entry.modified_ms =
      info.modified_time().seconds() * 1000 + info.modified_time().nanos() / 1'000'000;
  entry.symlink_target = info.symlink_target();
  return entry;
}

net::RequestHead files_request(const Inside& inside, std::string method, const std::string& path,
                               const std::string& user) {
  net::RequestHead head;
  head.method = std::move(method);
  head.target = "/files?path=" + percent_encode(path);
  if (!user.empty()) head.target += "&username=" + percent_encode(user);
  head.headers = agent_headers(inside, "");
  return head;
}

net::Task<Result<net::HttpClient>> connect_quiet(const Inside& inside) {
  auto connecting = inside.connect(kAgentPort);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  client.stream().set_read_timeout(kSilence);
  client.stream().set_write_timeout(kSilence);
  co_return client;
}

// Reads the head of an answer; another than 200 becomes an error with its words.
net::Task<Result<void>> expect_ok(net::HttpClient& client) {
  auto heading = client.read_head();
  ATOLL_CO_TRY_ASSIGN(const net::ResponseHead head, co_await std::move(heading));
  client.stream().set_read_timeout(kSilence);  // reading a head leaves none
  if (head.status == 200) co_return Result<void>();
  auto reading = client.body().read_all(kMaxRefusal);
  const auto text = co_await std::move(reading);
  co_return plain_error(head.status, text.ok() ? std::string_view(*text) : std::string_view());
}

Error broke(Error error) {
  if (error.code != Errc::unavailable) error.code = Errc::unavailable;
  return error;
}

// Path of the first file that an upload answers about.
Result<std::string> written_path(std::string_view body) {
  auto parsed = parse_json(body);
  const json::array* list = parsed.ok() ? parsed->if_array() : nullptr;
  const json::object* first = list && !list->empty() ? list->front().if_object() : nullptr;
  const json::value* path = first ? first->if_contains("path") : nullptr;
  if (!path || !path->is_string())
    return make_error(Errc::data_loss, "unreadable answer to an upload");
  return std::string(path->get_string());
}

net::Task<Result<std::string>> send_file(net::HttpClient& client, Source source,
                                         std::optional<std::uint64_t> length) {
  std::string buffer(kPiece, '\0');
  std::uint64_t total = 0;
  for (;;) {
    auto filling = source(buffer);
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(filling));
    if (n == 0) break;
    total += n;
    if (length && total > *length)
      co_return make_error(Errc::invalid_argument, "the source is longer than was said");
    auto writing = client.write_body(std::string_view(buffer).substr(0, n));
    auto written = co_await std::move(writing);
    if (!written.ok()) {
      // It may have been refused before it was whole: then the answer is there already.
      auto reading = expect_ok(client);
      auto answer = co_await std::move(reading);
      if (!answer.ok() && answer.error().code != Errc::unavailable)
        co_return std::move(answer).error();
      co_return broke(std::move(written).error());
    }
  }
  if (length && total < *length)
    co_return make_error(Errc::invalid_argument, "the source is shorter than was said");
  auto finishing = client.finish_body();
  ATOLL_CO_TRY(co_await std::move(finishing));
  auto expecting = expect_ok(client);
  ATOLL_CO_TRY(co_await std::move(expecting));
  auto reading = client.body().read_all(kMaxEntries);
  ATOLL_CO_TRY_ASSIGN(const std::string body, co_await std::move(reading));
  co_return written_path(body);
}

net::Task<Result<std::string>> upload_as(Inside inside, std::string path, Source source,
                                         std::optional<std::uint64_t> length, std::string user) {
  auto connecting = connect_quiet(inside);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  net::RequestHead head = files_request(inside, "POST", path, user);
  head.headers.set("Content-Type", "application/octet-stream");
  auto heading = client.write_head(head, length);
  ATOLL_CO_TRY(co_await std::move(heading));
  auto sending = send_file(client, std::move(source), length);
  co_return co_await std::move(sending);
}

struct Text {
  std::string bytes;
  std::size_t at = 0;
};

net::Task<Result<std::size_t>> take(std::shared_ptr<Text> text, std::span<char> into) {
  const std::size_t n = text->bytes.copy(into.data(), into.size(), text->at);
  text->at += n;
  co_return n;
}

}  // namespace

net::Task<Result<Entry>> stat_file(Inside inside, std::string path, std::string user) {
  pb::StatRequest request;
  request.set_path(std::move(path));
  pb::StatResponse response;
  auto calling = call_agent(std::move(inside), "/filesystem.Filesystem/Stat", request, response,
                            std::move(user));
  ATOLL_CO_TRY(co_await std::move(calling));
  co_return entry_of(response.entry());
}

net::Task<Result<std::vector<Entry>>> list_directory(Inside inside, std::string path,
                                                     std::uint32_t depth, std::string user) {
  pb::ListDirRequest request;
  request.set_path(std::move(path));
  request.set_depth(depth);
  pb::ListDirResponse response;
  auto calling = call_agent(std::move(inside), "/filesystem.Filesystem/ListDir", request, response,
                            std::move(user));
  ATOLL_CO_TRY(co_await std::move(calling));
  std::vector<Entry> entries;
  entries.reserve(std::size_t(response.entries_size()));
  for (const auto& info : response.entries()) entries.push_back(entry_of(info));
  co_return entries;
}

net::Task<Result<Entry>> make_directory(Inside inside, std::string path, std::string user) {
  pb::MakeDirRequest request;
  request.set_path(std::move(path));
  pb::MakeDirResponse response;
  auto calling = call_agent(std::move(inside), "/filesystem.Filesystem/MakeDir", request, response,
                            std::move(user));
  ATOLL_CO_TRY(co_await std::move(calling));
  co_return entry_of(response.entry());
}

net::Task<Result<Entry>> move_file(Inside inside, std::string from, std::string to,
                                   std::string user) {
  pb::MoveRequest request;
  request.set_source(std::move(from));
  request.set_destination(std::move(to));
  pb::MoveResponse response;
  auto calling = call_agent(std::move(inside), "/filesystem.Filesystem/Move", request, response,
                            std::move(user));
  ATOLL_CO_TRY(co_await std::move(calling));
  co_return entry_of(response.entry());
}

net::Task<Result<void>> remove_file(Inside inside, std::string path, std::string user) {
  pb::RemoveRequest request;
  request.set_path(std::move(path));
  pb::RemoveResponse response;
  auto calling = call_agent(std::move(inside), "/filesystem.Filesystem/Remove", request, response,
                            std::move(user));
  co_return co_await std::move(calling);
}

net::Task<Result<std::string>> read_file(Inside inside, std::string path, std::size_t limit,
                                         std::string user) {
  auto opening = Download::open(std::move(inside), std::move(path), std::move(user));
  ATOLL_CO_TRY_ASSIGN(Download download, co_await std::move(opening));
  const auto too_long = [limit] {
    return make_error(Errc::resource_exhausted,
                      "the file is longer than " + std::to_string(limit) + " bytes");
  };
  if (download.size() && *download.size() > limit) co_return too_long();
  std::string bytes;
  std::string buffer(kPiece, '\0');
  for (;;) {
    auto reading = download.read_some(buffer);
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(reading));
    if (n == 0) co_return bytes;
    if (n > limit - bytes.size()) co_return too_long();
    bytes.append(buffer, 0, n);
  }
}

net::Task<Result<std::string>> write_file(Inside inside, std::string path, std::string bytes,
                                          std::string user) {
  const std::uint64_t length = bytes.size();
  auto text = std::make_shared<Text>(Text{std::move(bytes)});
  auto source = [text](std::span<char> into) { return take(text, into); };
  auto sending =
      upload_as(std::move(inside), std::move(path), std::move(source), length, std::move(user));
  co_return co_await std::move(sending);
}

// ---- streams ----

Download::Download(net::HttpClient client)
    : client_(std::make_unique<net::HttpClient>(std::move(client))) {}
Download::Download(Download&&) noexcept = default;
Download& Download::operator=(Download&&) noexcept = default;
Download::~Download() = default;

net::Task<Result<Download>> Download::open(Inside inside, std::string path, std::string user) {
  auto connecting = connect_quiet(inside);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  const net::RequestHead head = files_request(inside, "GET", path, user);
  auto writing = client.write_request(head, "");
  ATOLL_CO_TRY(co_await std::move(writing));
  auto expecting = expect_ok(client);
  ATOLL_CO_TRY(co_await std::move(expecting));
  co_return Download(std::move(client));
}

std::optional<std::uint64_t> Download::size() const { return client_->body().content_length(); }

net::Task<Result<std::size_t>> Download::read_some(std::span<char> into) {
  auto reading = client_->body().read_some(into);
  auto n = co_await std::move(reading);
  if (!n.ok()) co_return Error{Errc::data_loss, 0, "the file broke off: " + n.error().message};
  co_return *n;
}

net::Task<Result<void>> upload(Inside inside, std::string path, Source source,
                               std::optional<std::uint64_t> length, std::string user) {
  auto sending =
      upload_as(std::move(inside), std::move(path), std::move(source), length, std::move(user));
  ATOLL_CO_TRY(co_await std::move(sending));
  co_return Result<void>();
}

}  // namespace atl::client
