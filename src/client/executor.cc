#include "client/executor.h"

#include "client/agent_call.h"
#include "client/interpreter.h"

namespace atl::client {
namespace {

using Clock = std::chrono::steady_clock;

json::value text_or_null(const std::optional<CellError>& error, std::string CellError::* field) {
  if (!error) return nullptr;
  return json::value((*error).*field);
}

json::array lines_of(const std::vector<std::string>& lines) {
  json::array out;
  for (const std::string& line : lines) out.emplace_back(line);
  return out;
}

std::string main_text(const Execution& execution) {
  for (const CellResult& result : execution.results) {
    if (result.is_main) return std::string(result.text_form("text"));
  }
  return {};
}

void fail(Executed& executed, const char* name, std::string value) {
  executed.success = false;
  executed.error = CellError{name, std::move(value), ""};
}

std::string seconds_of(std::chrono::milliseconds time) {
  std::string text = std::to_string(time.count() / 1000);
  if (time.count() % 1000 != 0) text += "." + std::to_string(1000 + time.count() % 1000).substr(1);
  return text + " s";
}

// The run itself. What was said before a timeout is kept.
net::Task<void> run(const Inside& inside, std::string code, const ExecuteOptions& options,
                    Executed& executed) {
  auto connecting = inside.connect(kInterpreterPort);
  auto client = co_await std::move(connecting);
  if (!client.ok()) {
    fail(executed, kSandboxError, client.error().message);
    co_return;
  }
  ExecuteRequest request;
  request.code = std::move(code);
  request.language = options.language;
  request.env_vars = options.envs;
  request.headers = inside.headers(kInterpreterPort);
  ExecutionEvents events;
  events.on_stdout = [&executed](std::string_view text) { executed.out.emplace_back(text); };
  events.on_stderr = [&executed](std::string_view text) { executed.err.emplace_back(text); };
  const Guard guard(client->stream(), options.timeout);
  auto running = execute(*client, std::move(request), std::move(events));
  auto execution = co_await std::move(running);
  if (execution.ok()) {
    executed.success = !execution->error;
    executed.output = main_text(*execution);
    executed.error = std::move(execution->error);
    executed.results = std::move(execution->results);
  } else if (guard.fired()) {
    fail(executed, kTimeoutError, "the execution was ended after " + seconds_of(options.timeout));
  } else {
    fail(executed, kSandboxError, execution.error().message);
  }
}

}  // namespace

json::object Executed::to_json() const {
  json::object out;
  out["success"] = success;
  out["output"] = output;
  out["error_name"] = text_or_null(error, &CellError::name);
  out["error_value"] = text_or_null(error, &CellError::value);
  out["error_traceback"] = text_or_null(error, &CellError::traceback);
  out["execution_time_ms"] = time_ms;
  out["logs"] = json::object{{"stdout", lines_of(this->out)}, {"stderr", lines_of(err)}};
  return out;
}

net::Task<Executed> execute_structured(SandboxSource source, std::string code,
                                       ExecuteOptions options) {
  Executed executed;
  if (options.timeout <= options.timeout.zero()) {
    fail(executed, kSandboxError, "the timeout must be more than zero");
    co_return executed;
  }
  auto creating = source.create();
  auto inside = co_await std::move(creating);
  if (!inside.ok()) {
    fail(executed, kSandboxError, inside.error().message);
    co_return executed;
  }
  const auto begin = Clock::now();
  auto running = run(*inside, std::move(code), options, executed);
  co_await std::move(running);
  executed.time_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
  auto disposing = source.dispose();
  co_await std::move(disposing);
  co_return executed;
}

}  // namespace atl::client
