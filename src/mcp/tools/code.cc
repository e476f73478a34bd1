#include <fmt/format.h>

#include "client/interpreter.h"
#include "mcp/cut.h"
#include "mcp/schema.h"
#include "mcp/tools/tool.h"

namespace atl::mcp {
namespace {

constexpr std::size_t kMaxStream = 48 << 10;  // bytes of stdout, of stderr, of a result's form
constexpr std::size_t kMaxResults = 50;
constexpr std::size_t kMaxImages = 10;
constexpr std::size_t kMaxImageBytes = 8 << 20;  // base64, of all
// A run that says more is interrupted: its output is of no use, and the server has to hold it.
constexpr std::size_t kMaxSaid = 32 << 20;
constexpr std::string_view kRest = "write it to a file and read that with read_file";

struct Run {
  std::optional<Result<client::Execution>> execution;
  // What was said until then, for a run that was interrupted.
  std::string out;
  std::string err;
  std::size_t said = 0;
  net::HttpClient* client = nullptr;
  bool too_much = false;
};

void count(Run& run, std::size_t bytes) {
  run.said += bytes;
  if (run.said <= kMaxSaid || run.too_much) return;
  run.too_much = true;
  if (run.client != nullptr) run.client->stream().close();
}

void hear(Run& run, std::string& into, std::string_view text) {
  into += text;
  count(run, text.size());
}

std::size_t size_of(const json::value& form) {
  return form.is_string() ? form.get_string().size() : json::serialize(form).size();
}

net::Task<void> execute(client::Inside inside, client::ExecuteRequest request, Run& run) {
  auto connecting = inside.connect(client::kInterpreterPort);
  auto client = co_await std::move(connecting);
  if (!client.ok()) {
    run.execution.emplace(std::move(client).error());
    co_return;
  }
  run.client = &*client;
  request.headers = inside.headers(client::kInterpreterPort);
  client::ExecutionEvents events;
  events.on_stdout = [&run](std::string_view text) { hear(run, run.out, text); };
  events.on_stderr = [&run](std::string_view text) { hear(run, run.err, text); };
  events.on_result = [&run](const client::CellResult& result) {
    for (const auto& form : result.forms) count(run, size_of(form.value()));
  };
  auto running = client::execute(*client, std::move(request), std::move(events));
  auto execution = co_await std::move(running);
  run.client = nullptr;
  run.execution.emplace(std::move(execution));
}

std::string cut(std::string_view text) { return cut_middle(to_utf8(text), kMaxStream, kRest); }

std::string joined(const std::vector<std::string>& pieces) {
  std::string out;
  for (const std::string& piece : pieces) out += piece;
  return out;
}

std::string without_breaks(std::string_view base64) {
  std::string out;
  for (const char c : base64) {
    if (c != '\n' && c != '\r' && c != ' ') out += c;
  }
  return out;
}

// Results as the answer shows them: images apart, long forms cut.
class Shown {
 public:
  json::object add(const client::CellResult& result) {
    json::object out;
    for (const auto& form : result.forms) {
      const std::string_view name(form.key());
      if (name == "png" || name == "jpeg") {
        add_image(out, name, result.text_form(name));
      } else if (form.value().is_string()) {
        out[name] = cut(form.value().get_string());
      } else if (!form.value().is_null()) {
        const std::string text = json::serialize(form.value());
        out[name] = text.size() <= kMaxStream ? form.value() : json::value(cut(text));
      }
    }
    out["is_main_result"] = result.is_main;
    return out;
  }

  std::vector<Image> images;
  std::size_t left_out = 0;

 private:
  void add_image(json::object& out, std::string_view name, std::string_view base64) {
    if (base64.empty()) return;
    std::string data = without_breaks(base64);
    if (images.size() == kMaxImages || bytes_ + data.size() > kMaxImageBytes) {
      ++left_out;
      return;
    }
    bytes_ += data.size();
    out["image"] = images.size();
    images.push_back({std::move(data), "image/" + std::string(name)});
  }

  std::size_t bytes_ = 0;
};

void add_part(std::string& text, std::string_view title, std::string_view part) {
  if (part.empty()) return;
  if (!text.empty() && text.back() != '\n') text += '\n';
  if (!title.empty()) text += fmt::format("[{}]\n", title);
  text += part;
}

Outcome interrupted(const Run& run, std::string code, std::string message) {
  Outcome outcome(ToolError{std::move(code), message});
  const std::string out = cut(run.out), err = cut(run.err);
  outcome.fields["stdout"] = out;
  outcome.fields["stderr"] = err;
  outcome.texts.clear();
  std::string text = out;
  add_part(text, "stderr", err);
  add_part(text, "", "[" + message + "]");
  outcome.texts.push_back(std::move(text));
  return outcome;
}

Outcome finished(client::Execution& execution) {
  Outcome outcome;
  const std::string out = cut(joined(execution.out)), err = cut(joined(execution.err));
  outcome.fields["stdout"] = out;
  outcome.fields["stderr"] = err;
  if (execution.count) outcome.fields["execution_count"] = *execution.count;
  Shown shown;
  json::array results;
  std::string main, others;
  std::size_t left_out = 0;
  for (const client::CellResult& result : execution.results) {
    if (results.size() == kMaxResults) {
      ++left_out;
      continue;
    }
    json::object one = shown.add(result);
    const std::string_view as_text = text_argument(one, "text");
    if (result.is_main) {
      main = as_text;
    } else {
      add_part(others, "", as_text);
    }
    results.emplace_back(std::move(one));
  }
  outcome.fields["text"] = main;
  outcome.fields["results"] = std::move(results);
  outcome.images = std::move(shown.images);
  std::string text = out;
  add_part(text, "stderr", err);
  add_part(text, "displayed", others);
  add_part(text, "result", main);
  if (execution.error) {
    const client::CellError& error = *execution.error;
    outcome.is_error = true;
    outcome.fields["error"] = "execution_error";
    outcome.fields["message"] = to_utf8(error.name + ": " + error.value);
    outcome.fields["error_name"] = to_utf8(error.name);
    outcome.fields["error_value"] = cut(error.value);
    outcome.fields["error_traceback"] = cut(error.traceback);
    add_part(
        text, "error",
        error.traceback.empty() ? to_utf8(error.name + ": " + error.value) : cut(error.traceback));
  }
  if (left_out + shown.left_out > 0) {
    const std::string note = fmt::format(
        "{} results and {} images were left out; save them to files", left_out, shown.left_out);
    outcome.fields["note"] = note;
    add_part(text, "", "[" + note + "]");
  }
  outcome.texts.push_back(text.empty() ? "[no output]" : std::move(text));
  return outcome;
}

ToolError refused(const Error& error, std::string_view language) {
  if (error.code == Errc::not_found && !is_lost_sandbox(error)) {
    return {"no_interpreter",
            fmt::format("the sandbox has no code interpreter for {} ({}); use bash_exec, or a "
                        "session with the template code-interpreter-v1",
                        to_utf8(language), to_utf8(error.message))};
  }
  // Its own words, from inside.
  if (error.code == Errc::internal) {
    return {"invalid_argument", fmt::format("the code interpreter refused: {}",
                                            cut_middle(to_utf8(error.message), 1000, ""))};
  }
  return to_tool_error(error);
}

}  // namespace

net::Task<Outcome> run_code(Bench& bench, const json::object& arguments) {
  client::ExecuteRequest request;
  request.code = text_argument(arguments, "code");
  request.language = text_argument(arguments, "language");
  auto entering = bench.inside();
  auto inside = co_await std::move(entering);
  if (!inside.ok()) co_return std::move(inside).error();
  const std::int64_t seconds = number_argument(arguments, "timeout");
  Run run;
  // Who leaves interrupts the code; the interpreter keeps its variables.
  auto running =
      bench.stop().run(execute(*inside, std::move(request), run), std::chrono::seconds(seconds));
  const Stop::Ended ended = co_await std::move(running);
  if (ended == Stop::Ended::stopped) co_return stopped_error();
  if (ended == Stop::Ended::timed_out) {
    Outcome outcome = interrupted(
        run, "timeout",
        fmt::format("the code was interrupted: it took longer than {} s. Variables that were set "
                    "are still there. Give it a longer timeout (at most 120) or smaller steps.",
                    seconds));
    outcome.fields["timed_out"] = true;
    co_return outcome;
  }
  if (run.too_much) {
    co_return interrupted(run, "output_limit",
                          fmt::format("the code was interrupted: it printed more than {}; {}",
                                      readable_size(kMaxSaid), kRest));
  }
  if (!run.execution) co_return ToolError{"internal_error", "the run ended without an answer"};
  if (!run.execution->ok())
    co_return refused(run.execution->error(), text_argument(arguments, "language"));
  Outcome outcome = finished(**run.execution);
  outcome.fields["timed_out"] = false;
  co_return outcome;
}

}  // namespace atl::mcp
