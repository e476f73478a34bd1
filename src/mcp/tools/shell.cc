#include <fmt/format.h>

#include "mcp/cut.h"
#include "mcp/schema.h"
#include "mcp/tools/paths.h"
#include "mcp/tools/tool.h"

namespace atl::mcp {
namespace {

constexpr std::size_t kMaxStream = 48 << 10;  // bytes of stdout and of stderr
constexpr std::string_view kRest =
    "redirect the output to a file and read that with read_file, or filter it";

std::string kept(const client::Output& output) {
  return cut_middle(to_utf8(output.head), to_utf8(output.tail), output.omitted, kMaxStream, kRest);
}

std::string as_text(const std::string& out, const std::string& err, std::string_view end) {
  std::string text = out;
  if (!err.empty()) {
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += "[stderr]\n" + err;
  }
  if (!end.empty()) {
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += end;
  }
  return text.empty() ? "[no output]" : text;
}

}  // namespace

net::Task<Outcome> bash_exec(Bench& bench, const json::object& arguments) {
  const std::string_view line = text_argument(arguments, "command");
  if (line.find_first_not_of(" \t\r\n") == std::string_view::npos)
    co_return ToolError{"invalid_argument", "the command is empty"};
  if (line.find('\0') != std::string_view::npos)
    co_return ToolError{"invalid_argument", "a command cannot have a NUL character"};
  client::Command command = client::shell(std::string(line));
  command.directory = kHome;
  command.timeout = std::chrono::seconds(number_argument(arguments, "timeout"));
  command.keep = kMaxStream;
  auto running = bench.run(std::move(command));
  auto done = co_await std::move(running);
  if (!done.ok()) co_return std::move(done).error();
  const std::string out = kept(done->out), err = kept(done->err);
  Outcome outcome;
  if (done->timed_out) {
    outcome.is_error = true;
    const std::string message = fmt::format(
        "the command was killed with its processes: it took longer than {} s. Give it "
        "a longer timeout (at most 120), or run it in the background: nohup COMMAND "
        "> log 2>&1 &",
        number_argument(arguments, "timeout"));
    outcome.fields["error"] = "timeout";
    outcome.fields["message"] = message;
    outcome.texts.push_back(as_text(out, err, "[" + message + "]"));
  } else {
    const std::string end =
        done->exit_code == 0 ? "" : fmt::format("[exit code {}]", done->exit_code);
    outcome.texts.push_back(as_text(out, err, end));
  }
  outcome.fields["stdout"] = out;
  outcome.fields["stderr"] = err;
  outcome.fields["exit_code"] = done->exit_code;
  outcome.fields["timed_out"] = done->timed_out;
  if (done->out.omitted > 0 || done->err.omitted > 0) {
    outcome.fields["note"] =
        fmt::format("{} bytes of stdout and {} bytes of stderr were left out; {}",
                    done->out.omitted, done->err.omitted, kRest);
  }
  co_return outcome;
}

}  // namespace atl::mcp
