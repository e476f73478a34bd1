#include "cli/program.h"

#include <unistd.h>

#include "agent/process.pb.h"
#include "base/encoding.h"
#include "cli/display.h"
#include "client/process_stream.h"
#include "rpc/client.h"

namespace atl::cli {

net::Task<Result<int>> run_program(const Inside& inside, const Language& language,
                                   std::string code) {
  if (language.program.empty()) {
    co_return make_error(Errc::failed_precondition, "the template has no code interpreter to run " +
                                                        std::string(language.name) + " with");
  }
  const std::string path = "/tmp/main" + std::string(language.suffixes[0]);
  auto opening = inside.connect(kAgentPort);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(opening));

  net::RequestHead upload;
  upload.method = "POST";
  upload.target = "/files?path=" + percent_encode(path);
  upload.headers = inside.headers(kAgentPort);
  upload.headers.add("Content-Type", "application/octet-stream");
  auto sending = client.request(std::move(upload), std::move(code));
  ATOLL_CO_TRY_ASSIGN(auto stored, co_await std::move(sending));
  if (stored.head.status != 200) {
    co_return make_error(Errc::internal, "the agent did not take the program: " + stored.body);
  }

  process::StartRequest start;
  start.mutable_process()->set_cmd(std::string(language.program));
  start.mutable_process()->add_args(path);
  (*start.mutable_process()->mutable_envs())["PYTHONUNBUFFERED"] = "1";
  start.set_stdin(false);
  rpc::CallOptions options;
  options.headers = inside.headers(kAgentPort);
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
      status =
          client::exit_code_of(event.end().exited(), event.end().exit_code(), event.end().status());
    }
  }
}

}  // namespace atl::cli
