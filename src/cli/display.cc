#include "cli/display.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>

#include "base/encoding.h"
#include "cli/table.h"

namespace atl::cli {
namespace {

struct FileForm {
  std::string_view form;
  std::string_view suffix;
  bool base64;
};
// A result is saved in the first of these forms that it has.
constexpr FileForm kFileForms[] = {
    {"png", ".png", true}, {"jpeg", ".jpg", true}, {"svg", ".svg", false}, {"pdf", ".pdf", true}};

std::optional<std::string> content_of(const FileForm& how, std::string_view text) {
  if (!how.base64) return std::string(text);
  std::string packed;  // R breaks the lines
  packed.reserve(text.size());
  for (const char c : text) {
    if (c != '\n' && c != '\r') packed += c;
  }
  return base64_decode(packed);
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void put(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads us any more; the code still runs to its end
    bytes.remove_prefix(std::size_t(n));
  }
}

int exit_status(const client::Execution& execution) {
  if (!execution.error) return 0;
  const client::CellError& error = *execution.error;
  if (error.name == "SystemExit" && (error.value.empty() || error.value == "None")) return 0;
  if (error.name == "SystemExit" || error.name.empty()) {
    if (const auto status = number(error.value)) return *status & 0xff;
  }
  return 1;
}

std::string readable_traceback(const client::CellError& error) {
  std::string_view text = error.traceback;
  if (text.empty()) {
    if (error.name.empty()) return number(error.value) ? "" : error.value;
    return error.value.empty() ? error.name : error.name + ": " + error.value;
  }
  if (text.starts_with("-----"))
    text.remove_prefix(std::min(text.find_first_not_of('-'), text.size()));
  std::string out(text);
  constexpr std::string_view kHead = "Traceback (most recent call last)";
  const std::size_t head = out.find(kHead);
  if (head != std::string::npos && head + kHead.size() < out.size() &&
      out[head + kHead.size()] != '\n' && out[head + kHead.size()] != ':')
    out.insert(head + kHead.size(), "\n");
  return out;
}

client::ExecutionEvents Display::events() {
  if (style_ == Style::json) return {};
  client::ExecutionEvents events;
  events.on_stdout = [this](std::string_view text) { say(STDOUT_FILENO, text); };
  events.on_stderr = [this](std::string_view text) { say(STDERR_FILENO, text); };
  events.on_result = [this](const client::CellResult& result) { show(result); };
  events.on_error = [this](const client::CellError& error) { show(error); };
  return events;
}

void Display::say(int fd, std::string_view text) {
  if (text.empty()) return;
  put(fd, text);
  mid_line_ = text.back() != '\n';
}

void Display::line(int fd, std::string_view text) {
  if (mid_line_) put(fd, "\n");
  mid_line_ = false;
  put(fd, std::string(text) + (text.ends_with('\n') ? "" : "\n"));
}

void Display::show(const client::CellResult& result) {
  for (const FileForm& how : kFileForms) {
    const std::string_view text = result.text_form(how.form);
    if (text.empty()) continue;
    const auto content = content_of(how, text);
    if (!content) continue;
    auto path = saver_.save("result" + std::string(how.suffix), *content);
    if (!path.ok()) return note("an image could not be saved: " + path.error().message);
    return saved(*path);
  }
  for (const std::string_view form : {"text", "markdown", "latex", "html", "javascript"}) {
    const std::string_view text = result.text_form(form);
    if (!text.empty()) return line(STDOUT_FILENO, text);
  }
  if (const json::value* value = result.forms.if_contains("json"))
    line(STDOUT_FILENO, json::serialize(*value));
}

void Display::show(const client::CellError& error) {
  if (error.name == "SystemExit") return;  // the exit status tells it
  const std::string text = readable_traceback(error);
  if (!text.empty()) line(STDERR_FILENO, text);
}

void Display::saved(const std::string& path) {
  files_.push_back(path);
  note("saved " + path);
}

void Display::note(std::string_view text) {
  if (style_ == Style::terminal) line(STDERR_FILENO, printable(text));
}

void Display::end(const client::Execution& execution) {
  if (style_ == Style::json) {
    json::object document = execution.to_json();
    json::array& files = (document["files"] = json::array()).get_array();
    for (const std::string& path : files_) files.emplace_back(path);
    put(STDOUT_FILENO, json::serialize(document) + "\n");
  } else if (mid_line_ && ::isatty(STDOUT_FILENO)) {
    line(STDOUT_FILENO, "");
  }
  files_.clear();
}

}  // namespace atl::cli
