// /process.Process/*: requests to the process table and back (wire/sandbox-agent.md §7).
#include <signal.h>

#include "agent/agent.h"
#include "agent/paths.h"
#include "agent/process_manager.h"
#include "agent/start_command.h"
#include "agent/users.h"

namespace atl::agent {
namespace {

using rpc::CallContext;
using rpc::MessageSink;
using rpc::MessageSource;
namespace pb = ::process;

Result<Selector> parse_selector(const pb::ProcessSelector& selector) {
  switch (selector.selector_case()) {
    case pb::ProcessSelector::kPid:
      return Selector(selector.pid());
    case pb::ProcessSelector::kTag:
      return Selector(selector.tag());
    case pb::ProcessSelector::SELECTOR_NOT_SET:
      break;
  }
  return make_error(Errc::unimplemented,
                    "invalid input type: the process is selected neither by pid nor by tag");
}

Result<std::shared_ptr<Process>> find(ProcessManager& processes,
                                      const pb::ProcessSelector& selector) {
  ATOLL_TRY_ASSIGN(const Selector wanted, parse_selector(selector));
  return processes.find(wanted);
}

WindowSize window_size(const pb::PTY& pty) {
  return {std::uint16_t(pty.size().cols()), std::uint16_t(pty.size().rows())};
}

pb::StartResponse start_event(pid_t pid) {
  pb::StartResponse message;
  message.mutable_event()->mutable_start()->set_pid(std::uint32_t(pid));
  return message;
}

// Start event, then whatever comes, with keepalives in silence, to the end event.
net::Task<Result<void>> follow(MessageSink& sink, pid_t pid, Subscription& subscription,
                               std::chrono::seconds keepalive) {
  const pb::StartResponse start = start_event(pid);
  ATOLL_CO_TRY(co_await sink.send(start));
  pb::StartResponse ping;
  ping.mutable_event()->mutable_keepalive();
  for (;;) {
    const Event event = co_await subscription.next(keepalive);
    ATOLL_CO_TRY(co_await sink.send(event ? *event : ping));
    if (event && event->event().has_end()) co_return Result<void>();
  }
}

class ProcessService {
 public:
  ProcessService(AgentState& state, ProcessManager& processes, std::string path)
      : state_(state), processes_(processes), path_(std::move(path)) {}

  net::Task<Result<void>> start(CallContext& call, const pb::StartRequest& in, MessageSink& sink) {
    ATOLL_CO_TRY_ASSIGN(ProcessSpec spec, make_spec(call, in));
    ATOLL_CO_TRY_ASSIGN(ProcessManager::Started started, processes_.start(std::move(spec)));
    auto following = follow(sink, started.process->pid(), *started.subscription,
                            rpc::keepalive_interval(call.exchange.request.headers));
    co_return co_await std::move(following);
  }

  net::Task<Result<void>> connect(CallContext& call, const pb::ConnectRequest& in,
                                  MessageSink& sink) {
    ATOLL_CO_TRY_ASSIGN(const Selector selector, parse_selector(in.process()));
    ATOLL_CO_TRY_ASSIGN(ProcessManager::Attached attached, processes_.attach(selector));
    if (const auto* ended = std::get_if<Retained>(&attached.followed)) {
      const pb::StartResponse start = start_event(attached.pid);
      ATOLL_CO_TRY(co_await sink.send(start));
      const pb::StartResponse end = end_message(ended->end);
      co_return co_await sink.send(end);
    }
    auto& subscription = *std::get<std::unique_ptr<Subscription>>(attached.followed);
    auto following = follow(sink, attached.pid, subscription,
                            rpc::keepalive_interval(call.exchange.request.headers));
    co_return co_await std::move(following);
  }

  net::Task<Result<pb::ListResponse>> list(CallContext&, const pb::ListRequest&) {
    pb::ListResponse out;
    for (const auto& process : processes_.list()) {
      pb::ProcessInfo* info = out.add_processes();
      *info->mutable_config() = process->config();
      info->set_pid(std::uint32_t(process->pid()));
      if (process->tag()) info->set_tag(*process->tag());
    }
    co_return out;
  }

  net::Task<Result<pb::UpdateResponse>> update(CallContext&, const pb::UpdateRequest& in) {
    ATOLL_CO_TRY_ASSIGN(const auto process, find(processes_, in.process()));
    if (in.has_pty()) {
      ATOLL_CO_TRY(process->resize(window_size(in.pty())));
    }
    co_return pb::UpdateResponse();
  }

  net::Task<Result<pb::SendInputResponse>> send_input(CallContext& call,
                                                      const pb::SendInputRequest& in) {
    ATOLL_CO_TRY_ASSIGN(const auto process, find(processes_, in.process()));
    ATOLL_CO_TRY(co_await rpc::while_connected(call, write(process, in.input())));
    co_return pb::SendInputResponse();
  }

  net::Task<Result<void>> stream_input(CallContext&, MessageSource& source,
                                       pb::StreamInputResponse&) {
    std::shared_ptr<Process> process;
    pb::StreamInputRequest in;
    for (;;) {
      auto reading = source.next(in);
      ATOLL_CO_TRY_ASSIGN(const bool more, co_await std::move(reading));
      if (!more) co_return Result<void>();
      switch (in.event_case()) {
        case pb::StreamInputRequest::kStart: {
          ATOLL_CO_TRY_ASSIGN(process, find(processes_, in.start().process()));
          break;
        }
        case pb::StreamInputRequest::kData: {
          if (!process)
            co_return make_error(Errc::failed_precondition, "input before the start event");
          if (!process->running()) co_return make_error(Errc::not_found, "the process has ended");
          ATOLL_CO_TRY(co_await write(process, in.data().input()));
          break;
        }
        case pb::StreamInputRequest::kKeepalive:
          break;
        case pb::StreamInputRequest::EVENT_NOT_SET:
          co_return make_error(Errc::unimplemented, "invalid event type");
      }
    }
  }

  net::Task<Result<pb::SendSignalResponse>> send_signal(CallContext&,
                                                        const pb::SendSignalRequest& in) {
    ATOLL_CO_TRY_ASSIGN(const auto process, find(processes_, in.process()));
    if (in.signal() != pb::SIGNAL_SIGKILL && in.signal() != pb::SIGNAL_SIGTERM) {
      const std::string name = pb::Signal_Name(in.signal());
      co_return make_error(
          Errc::unimplemented,
          "invalid signal: " + (name.empty() ? std::to_string(int(in.signal())) : name));
    }
    ATOLL_CO_TRY(process->send_signal(in.signal() == pb::SIGNAL_SIGKILL ? SIGKILL : SIGTERM));
    co_return pb::SendSignalResponse();
  }

  net::Task<Result<pb::CloseStdinResponse>> close_stdin(CallContext& call,
                                                        const pb::CloseStdinRequest& in) {
    ATOLL_CO_TRY_ASSIGN(const auto process, find(processes_, in.process()));
    ATOLL_CO_TRY(co_await rpc::while_connected(call, process->close_stdin()));
    co_return pb::CloseStdinResponse();
  }

 private:
  Result<ProcessSpec> make_spec(CallContext& call, const pb::StartRequest& in) {
    ProcessSpec spec;
    ATOLL_TRY_ASSIGN(spec.user, select_user(call.exchange.request.headers.get("Authorization"),
                                            state_.default_user()));
    ATOLL_TRY_ASSIGN(spec.cwd,
                     resolve_path(in.process().cwd(), spec.user, state_.default_workdir()));
    spec.config = in.process();
    spec.env = process_environment(state_, path_, spec.user, in.process().envs());
    if (in.has_pty()) spec.pty = window_size(in.pty());
    if (in.has_tag()) spec.tag = in.tag();
    spec.stdin_pipe = !in.has_stdin() || in.stdin();
    spec.kill_at = call.deadline;
    return spec;
  }

  static net::Task<Result<void>> write(std::shared_ptr<Process> process, pb::ProcessInput input) {
    switch (input.input_case()) {
      case pb::ProcessInput::kStdin:
        co_return co_await process->write_stdin(std::move(*input.mutable_stdin()));
      case pb::ProcessInput::kPty:
        co_return co_await process->write_pty(std::move(*input.mutable_pty()));
      case pb::ProcessInput::INPUT_NOT_SET:
        break;
    }
    co_return make_error(Errc::unimplemented, "invalid input type");
  }

  AgentState& state_;
  ProcessManager& processes_;
  std::string path_;
};

}  // namespace

void register_process(rpc::Router& router, AgentState& state, ProcessManager& processes,
                      std::string path) {
  auto service = std::make_shared<ProcessService>(state, processes, std::move(path));
  router.unary<pb::ListRequest, pb::ListResponse>(
      "/process.Process/List",
      [service](CallContext& call, const pb::ListRequest& in) { return service->list(call, in); });
  router.server_stream<pb::StartRequest>(
      "/process.Process/Start",
      [service](CallContext& call, const pb::StartRequest& in, MessageSink& sink) {
        return service->start(call, in, sink);
      });
  router.server_stream<pb::ConnectRequest>(
      "/process.Process/Connect",
      [service](CallContext& call, const pb::ConnectRequest& in, MessageSink& sink) {
        return service->connect(call, in, sink);
      });
  router.unary<pb::UpdateRequest, pb::UpdateResponse>(
      "/process.Process/Update", [service](CallContext& call, const pb::UpdateRequest& in) {
        return service->update(call, in);
      });
  router.unary<pb::SendInputRequest, pb::SendInputResponse>(
      "/process.Process/SendInput", [service](CallContext& call, const pb::SendInputRequest& in) {
        return service->send_input(call, in);
      });
  router.client_stream<pb::StreamInputRequest, pb::StreamInputResponse>(
      "/process.Process/StreamInput",
      [service](CallContext& call, MessageSource& source, pb::StreamInputResponse& out) {
        return service->stream_input(call, source, out);
      });
  router.unary<pb::SendSignalRequest, pb::SendSignalResponse>(
      "/process.Process/SendSignal", [service](CallContext& call, const pb::SendSignalRequest& in) {
        return service->send_signal(call, in);
      });
  router.unary<pb::CloseStdinRequest, pb::CloseStdinResponse>(
      "/process.Process/CloseStdin", [service](CallContext& call, const pb::CloseStdinRequest& in) {
        return service->close_stdin(call, in);
      });
}

}  // namespace atl::agent
