#include "cli/program.h"

#include <unistd.h>

#include "agent/process.pb.h"
#include "base/encoding.h"
#include "cli/exec.h"
#include "rpc/client.h"

namespace atl::cli {
namespace {

struct LanguageRow {
  Language language;
  std::string_view names[3];
  std::string_view suffix;
  std::string_view command;
  std::string_view option;
};

constexpr LanguageRow kLanguages[] = {
    {Language::python, {"python", "py", "python3"}, ".py", "python3", "-u"},
    {Language::bash, {"bash", "sh", "shell"}, ".sh", "bash", ""},
    {Language::javascript, {"javascript", "js", "node"}, ".js", "node", ""},
};

const LanguageRow& row(Language language) {
  for (const auto& r : kLanguages) {
    if (r.language == language) return r;
  }
  return kLanguages[0];
}

void put(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads us any more; the code still runs to its end
    bytes.remove_prefix(std::size_t(n));
  }
}

net::Task<Result<net::HttpClient>> open_client(runtime::Runtime& runtime, SandboxId id) {
  auto connecting = runtime.connect_agent(id);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(connecting));
  co_return net::HttpClient(std::move(stream));
}

}  // namespace

std::optional<Language> parse_language(std::string_view name) {
  for (const auto& r : kLanguages) {
    for (std::string_view n : r.names) {
      if (n == name) return r.language;
    }
  }
  return std::nullopt;
}

std::optional<Language> language_of_file(std::string_view path) {
  for (const auto& r : kLanguages) {
    if (path.ends_with(r.suffix)) return r.language;
  }
  if (path.ends_with(".mjs") || path.ends_with(".cjs")) return Language::javascript;
  return std::nullopt;
}

net::Task<Result<int>> run_program(runtime::Runtime& runtime, SandboxId id,
                                   std::string access_token, Program program) {
  const LanguageRow& how = row(program.language);
  const std::string path = "/tmp/main" + std::string(how.suffix);
  auto opening = open_client(runtime, id);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(opening));

  net::RequestHead upload;
  upload.method = "POST";
  upload.target = "/files?path=" + percent_encode(path);
  upload.headers.add("Content-Type", "application/octet-stream");
  upload.headers.add("X-Access-Token", access_token);
  auto sending = client.request(std::move(upload), std::move(program.code));
  ATOLL_CO_TRY_ASSIGN(auto stored, co_await std::move(sending));
  if (stored.head.status != 200) {
    co_return make_error(Errc::internal, "the agent did not take the program: " + stored.body);
  }

  process::StartRequest start;
  start.mutable_process()->set_cmd(std::string(how.command));
  if (!how.option.empty()) start.mutable_process()->add_args(std::string(how.option));
  start.mutable_process()->add_args(path);
  for (const auto& [key, value] : program.envs)
    (*start.mutable_process()->mutable_envs())[key] = value;
  start.set_stdin(false);
  rpc::CallOptions options;
  options.headers.add("X-Access-Token", access_token);
  options.timeout = program.timeout;
  auto calling = rpc::ServerStream::open(client, "/process.Process/Start", start, options);
  ATOLL_CO_TRY_ASSIGN(rpc::ServerStream events, co_await std::move(calling));
  int status = 1;
  for (;;) {
    process::StartResponse message;
    auto next = events.next(message);
    ATOLL_CO_TRY_ASSIGN(const bool more, co_await std::move(next));
    if (!more) co_return status;
    const auto& event = message.event();
    if (event.has_data()) {
      put(STDOUT_FILENO, event.data().stdout());
      put(STDERR_FILENO, event.data().stderr());
    } else if (event.has_end()) {
      status = exit_code_of(event.end().exited(), event.end().exit_code(), event.end().status());
    }
  }
}

}  // namespace atl::cli
