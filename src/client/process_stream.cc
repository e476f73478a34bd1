#include "client/process_stream.h"

#include <charconv>
#include <csignal>

#include "agent/process.pb.h"
#include "client/agent_call.h"

namespace atl::client {
namespace {

namespace pb = ::process;

// The agent kills at the deadline; one that does not say so by then is not waited for.
constexpr std::chrono::milliseconds kGrace{5'000};
constexpr std::size_t kMaxMessage = 4 << 20;
// Names the mark inside. Children inherit it, whatever group or session they choose.
constexpr const char* kMarkVariable = "ATOLL_COMMAND";

pb::StartRequest start_request(const Command& command, const StartOptions& options) {
  pb::StartRequest start;
  auto* process = start.mutable_process();
  process->set_cmd(command.program);
  for (const std::string& argument : command.arguments) process->add_args(argument);
  for (const auto& [name, value] : command.envs) (*process->mutable_envs())[name] = value;
  if (!options.mark.empty()) (*process->mutable_envs())[kMarkVariable] = options.mark;
  if (!command.directory.empty()) process->set_cwd(command.directory);
  if (!options.tag.empty()) start.set_tag(options.tag);
  if (options.terminal) {
    start.mutable_pty()->mutable_size()->set_cols(options.terminal->columns);
    start.mutable_pty()->mutable_size()->set_rows(options.terminal->rows);
  } else {
    start.set_stdin(options.stdin_pipe);
  }
  return start;
}

ProcessEvent end_of(const pb::ProcessEvent::EndEvent& end) {
  ProcessEvent event;
  event.exit_code = exit_code_of(end.exited(), end.exit_code(), end.status());
  event.status = end.status();
  return event;
}

Error gone(Error error) {
  Error known = agent_error(std::move(error));
  if (known.code == Errc::data_loss || known.code == Errc::canceled) known.code = Errc::unavailable;
  return known;
}

}  // namespace

struct ProcessStream::Impl {
  Impl(net::HttpClient c, std::chrono::milliseconds limit)
      : client(std::move(c)), guard(client.stream(), limit) {}

  // The next event of either call: both have the same shape on the wire.
  net::Task<Result<bool>> read(pb::StartResponse& message) {
    auto reading = events->next(message);
    auto more = co_await std::move(reading);
    if (!more.ok() && guard.fired())
      co_return make_error(Errc::deadline_exceeded, "the agent did not end the process in time");
    if (!more.ok()) co_return gone(std::move(more).error());
    co_return more;
  }

  // A start is told at once, however long the process may take.
  net::Task<Result<void>> open(std::string path, const google::protobuf::Message& request,
                               rpc::CallOptions options) {
    const Guard patience(client.stream(), kCallTime);
    auto beginning = begin(std::move(path), request, std::move(options));
    auto begun = co_await std::move(beginning);
    if (!begun.ok() && patience.fired())
      co_return make_error(Errc::unavailable, "the agent of the sandbox does not answer");
    co_return begun;
  }

  net::Task<Result<void>> begin(std::string path, const google::protobuf::Message& request,
                                rpc::CallOptions options) {
    auto opening = rpc::ServerStream::open(client, std::move(path), request, std::move(options));
    auto opened = co_await std::move(opening);
    if (!opened.ok()) co_return gone(std::move(opened).error());
    events.emplace(std::move(*opened));
    pb::StartResponse first;
    auto reading = read(first);
    ATOLL_CO_TRY_ASSIGN(const bool more, co_await std::move(reading));
    if (!more || !first.event().has_start())
      co_return make_error(Errc::data_loss, "the agent's first event is not a start");
    pid = first.event().start().pid();
    co_return Result<void>();
  }

  net::HttpClient client;
  Guard guard;
  std::optional<rpc::ServerStream> events;
  std::uint32_t pid = 0;
};

ProcessStream::ProcessStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProcessStream::ProcessStream(ProcessStream&&) noexcept = default;
ProcessStream& ProcessStream::operator=(ProcessStream&&) noexcept = default;
ProcessStream::~ProcessStream() = default;

net::Task<Result<ProcessStream>> ProcessStream::start(Inside inside, Command command,
                                                      StartOptions options) {
  const pb::StartRequest request = start_request(command, options);
  rpc::CallOptions call;
  call.headers = agent_headers(inside, command.user);
  call.limit = kMaxMessage;
  const bool limited = command.timeout > command.timeout.zero();
  if (limited) call.timeout = command.timeout;
  auto connecting = inside.connect(kAgentPort);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  auto impl = std::make_unique<Impl>(std::move(client),
                                     limited ? command.timeout + kGrace : command.timeout.zero());
  auto opening = impl->open("/process.Process/Start", request, std::move(call));
  ATOLL_CO_TRY(co_await std::move(opening));
  co_return ProcessStream(std::move(impl));
}

net::Task<Result<ProcessStream>> ProcessStream::connect(Inside inside, std::uint32_t pid) {
  pb::ConnectRequest request;
  request.mutable_process()->set_pid(pid);
  rpc::CallOptions call;
  call.headers = agent_headers(inside, "");
  call.limit = kMaxMessage;
  auto connecting = inside.connect(kAgentPort);
  ATOLL_CO_TRY_ASSIGN(net::HttpClient client, co_await std::move(connecting));
  auto impl = std::make_unique<Impl>(std::move(client), std::chrono::milliseconds(0));
  auto opening = impl->open("/process.Process/Connect", request, std::move(call));
  ATOLL_CO_TRY(co_await std::move(opening));
  co_return ProcessStream(std::move(impl));
}

std::uint32_t ProcessStream::pid() const { return impl_->pid; }

net::Task<Result<ProcessEvent>> ProcessStream::next() {
  for (;;) {
    pb::StartResponse message;
    auto reading = impl_->read(message);
    ATOLL_CO_TRY_ASSIGN(const bool more, co_await std::move(reading));
    if (!more) co_return make_error(Errc::unavailable, "the process's end was not told");
    auto& event = *message.mutable_event();
    if (event.has_end()) co_return end_of(event.end());
    if (!event.has_data()) continue;
    auto& data = *event.mutable_data();
    ProcessEvent out;
    if (data.has_stdout()) {
      out.kind = ProcessEvent::Kind::out;
      out.bytes = std::move(*data.mutable_stdout());
    } else if (data.has_stderr()) {
      out.kind = ProcessEvent::Kind::err;
      out.bytes = std::move(*data.mutable_stderr());
    } else {
      out.kind = ProcessEvent::Kind::terminal;
      out.bytes = std::move(*data.mutable_pty());
    }
    co_return out;
  }
}

void ProcessStream::close() { impl_->client.stream().close(); }

// ---- single calls ----

net::Task<Result<std::vector<ProcessInfo>>> list_processes(Inside inside) {
  const pb::ListRequest request;
  pb::ListResponse response;
  auto calling = call_agent(std::move(inside), "/process.Process/List", request, response);
  ATOLL_CO_TRY(co_await std::move(calling));
  std::vector<ProcessInfo> out;
  for (const auto& process : response.processes()) {
    ProcessInfo info{process.pid(), process.config().cmd(), {}, process.tag()};
    info.arguments.assign(process.config().args().begin(), process.config().args().end());
    out.push_back(std::move(info));
  }
  co_return out;
}

net::Task<Result<void>> send_signal(Inside inside, std::uint32_t pid, int signal) {
  pb::SendSignalRequest request;
  request.mutable_process()->set_pid(pid);
  request.set_signal(signal == SIGTERM ? pb::SIGNAL_SIGTERM : pb::SIGNAL_SIGKILL);
  pb::SendSignalResponse response;
  auto calling = call_agent(std::move(inside), "/process.Process/SendSignal", request, response);
  auto called = co_await std::move(calling);
  // It ended between the agent's look and its signal.
  if (!called.ok() && called.error().message.find("already finished") != std::string::npos)
    co_return make_error(Errc::not_found, "process with pid " + std::to_string(pid) + " not found");
  co_return called;
}

net::Task<Result<void>> kill_process(Inside inside, std::uint32_t pid) {
  return send_signal(std::move(inside), pid, SIGKILL);
}

net::Task<Result<void>> send_stdin(Inside inside, std::uint32_t pid, std::string bytes) {
  pb::SendInputRequest request;
  request.mutable_process()->set_pid(pid);
  request.mutable_input()->set_stdin(std::move(bytes));
  pb::SendInputResponse response;
  auto calling = call_agent(std::move(inside), "/process.Process/SendInput", request, response);
  co_return co_await std::move(calling);
}

net::Task<Result<void>> close_stdin(Inside inside, std::uint32_t pid) {
  pb::CloseStdinRequest request;
  request.mutable_process()->set_pid(pid);
  pb::CloseStdinResponse response;
  auto calling = call_agent(std::move(inside), "/process.Process/CloseStdin", request, response);
  co_return co_await std::move(calling);
}

net::Task<Result<void>> send_terminal(Inside inside, std::uint32_t pid, std::string bytes) {
  pb::SendInputRequest request;
  request.mutable_process()->set_pid(pid);
  request.mutable_input()->set_pty(std::move(bytes));
  pb::SendInputResponse response;
  auto calling = call_agent(std::move(inside), "/process.Process/SendInput", request, response);
  co_return co_await std::move(calling);
}

net::Task<Result<void>> resize_terminal(Inside inside, std::uint32_t pid, TerminalSize size) {
  pb::UpdateRequest request;
  request.mutable_process()->set_pid(pid);
  request.mutable_pty()->mutable_size()->set_cols(size.columns);
  request.mutable_pty()->mutable_size()->set_rows(size.rows);
  pb::UpdateResponse response;
  auto calling = call_agent(std::move(inside), "/process.Process/Update", request, response);
  co_return co_await std::move(calling);
}

int exit_code_of(bool exited, int exit_code, std::string_view status) {
  if (exited) return exit_code & 0xFF;
  static constexpr std::pair<std::string_view, int> kSignals[] = {
      {"hangup", SIGHUP},
      {"interrupt", SIGINT},
      {"quit", SIGQUIT},
      {"illegal instruction", SIGILL},
      {"trace/breakpoint trap", SIGTRAP},
      {"aborted", SIGABRT},
      {"bus error", SIGBUS},
      {"floating point exception", SIGFPE},
      {"killed", SIGKILL},
      {"user defined signal 1", SIGUSR1},
      {"segmentation fault", SIGSEGV},
      {"user defined signal 2", SIGUSR2},
      {"broken pipe", SIGPIPE},
      {"alarm clock", SIGALRM},
      {"terminated", SIGTERM},
  };
  if (status.starts_with("signal: ")) status.remove_prefix(8);
  for (const auto& [name, number] : kSignals) {
    if (status.starts_with(name)) return 128 + number;
  }
  int number = 0;
  if (status.starts_with("signal ")) {
    std::from_chars(status.data() + 7, status.data() + status.size(), number);
    if (number > 0 && number < 128) return 128 + number;
  }
  return 1;
}

}  // namespace atl::client
