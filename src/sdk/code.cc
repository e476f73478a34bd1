// run_code and contexts.
#include <atoll/sandbox.h>

#include "client/agent_call.h"
#include "client/interpreter.h"
#include "sdk/convert.h"
#include "sdk/state.h"

namespace atl::sdk {
namespace {

// Events of one piece of the answer, on their way to the listener.
struct Heard {
  std::vector<std::function<void()>> events;
  bool threw = false;
};

net::Task<void> tell(std::shared_ptr<Io> io, std::shared_ptr<Mailbox> box, Heard& heard,
                     net::Stream& stream) {
  if (heard.events.empty() || heard.threw) co_return;
  auto delivering = deliver(std::move(io), std::move(box), [events = std::move(heard.events)] {
    for (const auto& event : events) event();
  });
  heard.events.clear();
  heard.threw = !co_await std::move(delivering);
  if (heard.threw) stream.close();
}

client::ExecutionEvents collect(const CodeEvents& events, Heard& heard) {
  client::ExecutionEvents out;
  if (events.on_stdout) {
    out.on_stdout = [&heard, call = events.on_stdout](std::string_view text) {
      heard.events.push_back([call, text = std::string(text)] { call(text); });
    };
  }
  if (events.on_stderr) {
    out.on_stderr = [&heard, call = events.on_stderr](std::string_view text) {
      heard.events.push_back([call, text = std::string(text)] { call(text); });
    };
  }
  if (events.on_result) {
    out.on_result = [&heard, call = events.on_result](const client::CellResult& result) {
      heard.events.push_back([call, result = public_result(result)] { call(result); });
    };
  }
  if (events.on_error) {
    out.on_error = [&heard, call = events.on_error](const client::CellError& error) {
      heard.events.push_back([call, error = public_code_error(error)] { call(error); });
    };
  }
  return out;
}

net::Task<Result<Execution>> run(std::weak_ptr<Io> weak, client::Inside inside, std::string code,
                                 CodeOptions options, std::shared_ptr<Mailbox> box) {
  auto connecting = inside.connect(client::kInterpreterPort);
  auto client = co_await std::move(connecting);
  if (!client.ok()) co_return public_error(client.error());
  client::ExecuteRequest request;
  request.code = std::move(code);
  request.language = options.language;
  request.context_id = options.context_id;
  request.env_vars = std::move(options.envs);
  request.headers = inside.headers(client::kInterpreterPort);
  Heard heard;
  net::Stream& stream = client->stream();
  const client::Guard guard(stream, options.timeout);
  std::function<net::Task<void>()> after;
  if (box) after = [&, weak] { return tell(weak.lock(), box, heard, stream); };
  auto running = client::execute(*client, std::move(request), collect(options.events, heard),
                                 std::move(after));
  auto execution = co_await std::move(running);
  if (heard.threw) co_return callback_threw();
  if (!execution.ok() && guard.fired()) {
    co_return Error{Code::deadline_exceeded, "the code was interrupted after " +
                                                 std::to_string(options.timeout.count()) + " ms"};
  }
  if (!execution.ok()) co_return public_error(execution.error());
  co_return public_execution(std::move(*execution));
}

bool listens(const CodeEvents& events) {
  return events.on_stdout || events.on_stderr || events.on_result || events.on_error;
}

net::Task<Result<CodeContext>> make_context(client::Inside inside, std::string language,
                                            std::string directory) {
  auto making =
      client::create_context(std::move(inside), std::move(language), std::move(directory));
  auto made = co_await std::move(making);
  if (!made.ok()) co_return public_error(made.error());
  co_return CodeContext{made->id, made->language, made->directory};
}

net::Task<Result<std::vector<CodeContext>>> all_contexts(client::Inside inside) {
  auto listing = client::list_contexts(std::move(inside));
  auto found = co_await std::move(listing);
  if (!found.ok()) co_return public_error(found.error());
  std::vector<CodeContext> out;
  for (const auto& each : *found) out.push_back({each.id, each.language, each.directory});
  co_return out;
}

}  // namespace

Result<Execution> Sandbox::run_code(std::string code, CodeOptions options) {
  const auto state = state_;
  auto box = listens(options.events) ? std::make_shared<Mailbox>() : nullptr;
  auto task = run(state->core->io(), state->inside, std::move(code), std::move(options), box);
  return box ? state->core->wait(box, std::move(task)) : state->core->wait(std::move(task));
}

std::future<Result<Execution>> Sandbox::run_code_async(std::string code, CodeOptions options) {
  auto box = listens(options.events) ? state_->core->dispatcher() : nullptr;
  return state_->core->spawn(
      run(state_->core->io(), state_->inside, std::move(code), std::move(options), box));
}

Result<CodeContext> Sandbox::create_context(std::string language, std::string directory) {
  const auto state = state_;
  return state->core->wait(make_context(state->inside, std::move(language), std::move(directory)));
}

Result<std::vector<CodeContext>> Sandbox::list_contexts() {
  const auto state = state_;
  return state->core->wait(all_contexts(state->inside));
}

Result<void> Sandbox::restart_context(const std::string& id) {
  const auto state = state_;
  return state->core->wait(publish<void>(client::restart_context(state->inside, id)));
}

Result<void> Sandbox::remove_context(const std::string& id) {
  const auto state = state_;
  return state->core->wait(publish<void>(client::remove_context(state->inside, id)));
}

}  // namespace atl::sdk
