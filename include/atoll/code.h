// Code in a sandbox's interpreter: what it is given and what it says.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::sdk {

// A value that the code showed, or the value of its last expression, in all its forms.
struct CodeResult {
  // "text", "html", "markdown", "svg", "png" and "jpeg" (base64), "latex", "json", "data", "chart"
  // ...: texts as they are, everything else as JSON.
  std::map<std::string, std::string> formats;
  bool is_main = false;  // of the last expression

  // Empty: there is no such form.
  std::string_view format(const std::string& name) const {
    const auto found = formats.find(name);
    return found == formats.end() ? std::string_view() : std::string_view(found->second);
  }
  std::string_view text() const { return format("text"); }
};

struct CodeError {
  std::string name;
  std::string value;
  std::string traceback;
};

struct Execution {
  std::optional<std::int64_t> count;  // how many runs the context had
  std::vector<std::string> out;       // stdout, as it came
  std::vector<std::string> err;
  std::vector<CodeResult> results;
  std::optional<CodeError> error;

  // Text of the main result; empty: there is none.
  std::string_view text() const {
    for (const CodeResult& result : results) {
      if (result.is_main) return result.text();
    }
    return {};
  }
};

// Called as things come.
struct CodeEvents {
  std::function<void(std::string_view)> on_stdout;
  std::function<void(std::string_view)> on_stderr;
  std::function<void(const CodeResult&)> on_result;
  std::function<void(const CodeError&)> on_error;
};

struct CodeOptions {
  std::string language;    // "python", "javascript", "typescript", "bash", "r", "java"
  std::string context_id;  // instead of a language: variables of that context
  std::map<std::string, std::string> envs;
  // Then the run is interrupted; the context keeps its variables. Zero: no limit.
  std::chrono::milliseconds timeout{300'000};
  CodeEvents events;
};

// A kernel with variables of its own.
struct CodeContext {
  std::string id;
  std::string language;
  std::string directory;
};

}  // namespace atl::sdk
