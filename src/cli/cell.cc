#include "cli/cell.h"

#include <fmt/format.h>

#include <charconv>

#include "agent/process.pb.h"
#include "base/encoding.h"
#include "client/interpreter.h"
#include "rpc/client.h"

namespace atl::cli {
namespace {

constexpr std::string_view kHome = "/home/user";
constexpr std::size_t kMaxList = 1 << 20;
constexpr std::size_t kMaxFiles = 1000;
constexpr std::uint64_t kMaxBytes = 1ULL << 30;  // of all files of a run

struct Found {
  std::uint64_t size = 0;
  std::string name;  // below the home directory
};

// "SIZE NAME\0" again and again.
std::vector<Found> parse_list(std::string_view text) {
  std::vector<Found> out;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    Found found;
    const auto [end, ec] = std::from_chars(item.data(), item.data() + item.size(), found.size);
    if (ec != std::errc() || end == item.data() + item.size() || *end != ' ') continue;
    found.name.assign(end + 1, item.data() + item.size());
    out.push_back(std::move(found));
  }
  return out;
}

net::Task<Result<std::vector<Found>>> list_new(const Inside& inside, std::string since) {
  auto connecting = inside.connect(kAgentPort);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  process::StartRequest start;
  start.mutable_process()->set_cmd("find");
  for (const std::string& word : std::vector<std::string>{std::string(kHome),
                                                          "-mindepth",
                                                          "1",
                                                          "(",
                                                          "-name",
                                                          ".*",
                                                          "-o",
                                                          "-name",
                                                          "node_modules",
                                                          "-o",
                                                          "-name",
                                                          "__pycache__",
                                                          ")",
                                                          "-prune",
                                                          "-o",
                                                          "-type",
                                                          "f",
                                                          "-newerct",
                                                          since,
                                                          "-printf",
                                                          "%s %P\\0"})
    start.mutable_process()->add_args(word);
  start.set_stdin(false);
  rpc::CallOptions options;
  options.headers = inside.headers(kAgentPort);
  auto calling = rpc::ServerStream::open(client, "/process.Process/Start", start, options);
  ATOLL_CO_TRY_ASSIGN(rpc::ServerStream events, co_await std::move(calling));
  std::string list;
  for (;;) {
    process::StartResponse message;
    auto next = events.next(message);
    ATOLL_CO_TRY_ASSIGN(const bool more, co_await std::move(next));
    if (!more) break;
    list += message.event().data().stdout();
    if (list.size() > kMaxList)
      co_return make_error(Errc::resource_exhausted, "the run made too many files to save them");
  }
  co_return parse_list(list);
}

net::Task<Result<std::string>> download(const Inside& inside, Found file, Saver& saver) {
  auto connecting = inside.connect(kAgentPort);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  net::RequestHead head;
  head.target =
      "/files?username=user&path=" + percent_encode(fmt::format("{}/{}", kHome, file.name));
  head.headers = inside.headers(kAgentPort);
  auto sending = client.write_head(head, 0);
  ATOLL_CO_TRY(co_await std::move(sending));
  auto heading = client.read_head();
  ATOLL_CO_TRY_ASSIGN(const net::ResponseHead answer, co_await std::move(heading));
  if (answer.status != 200)
    co_return make_error(Errc::unavailable, fmt::format("the agent answered {}", answer.status));
  ATOLL_CO_TRY_ASSIGN(std::string path, saver.open(file.name));
  std::string buffer(64 << 10, '\0');
  std::uint64_t total = 0;
  for (;;) {
    auto reading = client.body().read_some(buffer);
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(reading));
    if (n == 0) break;
    if ((total += n) > kMaxBytes)
      co_return make_error(Errc::resource_exhausted, "it grows without end");
    ATOLL_CO_TRY(saver.write(std::string_view(buffer).substr(0, n)));
  }
  ATOLL_CO_TRY(saver.close());
  co_return path;
}

}  // namespace

void Interrupter::interrupt() {
  interrupted_ = true;
  if (client_ != nullptr) client_->stream().close();
}

net::Task<Result<client::Execution>> run_cell(const Inside& inside, std::string code,
                                              std::string language, Display& display,
                                              Interrupter& interrupter) {
  interrupter.interrupted_ = false;
  auto connecting = inside.connect(client::kInterpreterPort);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  client::ExecuteRequest request;
  request.code = std::move(code);
  request.language = std::move(language);
  request.headers = inside.headers(client::kInterpreterPort);
  interrupter.client_ = &client;
  auto running = client::execute(client, std::move(request), display.events());
  auto execution = co_await std::move(running);
  interrupter.client_ = nullptr;
  if (!execution.ok() && interrupter.interrupted_)
    co_return make_error(Errc::canceled, "interrupted");
  co_return execution;
}

net::Task<Result<void>> save_new_files(const Inside& inside,
                                       std::chrono::system_clock::time_point since,
                                       Display& display) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since.time_since_epoch());
  auto listing = list_new(inside, fmt::format("@{}.{:03}", ms.count() / 1000, ms.count() % 1000));
  ATOLL_CO_TRY_ASSIGN(const std::vector<Found> files, co_await std::move(listing));
  std::uint64_t total = 0;
  std::size_t count = 0, left_out = 0;
  for (const Found& file : files) {
    if (!is_savable_name(file.name) || count >= kMaxFiles || total + file.size > kMaxBytes) {
      ++left_out;
      continue;
    }
    ++count;
    total += file.size;
    auto downloading = download(inside, file, display.saver());
    auto path = co_await std::move(downloading);
    if (path.ok()) {
      display.saved(*path);
    } else {
      display.note(fmt::format("{} could not be saved: {}", file.name, path.error().message));
    }
  }
  if (left_out > 0) {
    display.note(
        fmt::format("{} files were not saved: at most {} files and 1 GiB, with plain names",
                    left_out, kMaxFiles));
  }
  co_return Result<void>();
}

}  // namespace atl::cli
