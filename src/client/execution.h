// Execution: all that one run of a code interpreter said. ExecutionReader makes it from the body of
// an answer to POST /execute: one JSON object per line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace atl::client {

// One value that the code showed, or the value of its last expression, in all its forms: "text",
// "html", "png" (base64) and so on.
struct CellResult {
  json::object forms;  // without "type" and "is_main_result"
  bool is_main = false;

  // A form that is a string; empty if there is none.
  std::string_view text_form(std::string_view name) const;
};

struct CellError {
  std::string name;
  std::string value;
  std::string traceback;
};

struct Execution {
  std::optional<std::int64_t> count;  // nullopt: it never began
  std::vector<std::string> out;
  std::vector<std::string> err;
  std::vector<CellResult> results;
  std::optional<CellError> error;  // the last one
  bool ended = false;              // the answer is whole

  // {"execution_count", "results", "logs": {"stdout", "stderr"}, "error"}
  json::object to_json() const;
};

// Called as things come. Empty functions are skipped.
struct ExecutionEvents {
  std::function<void(std::string_view)> on_stdout;
  std::function<void(std::string_view)> on_stderr;
  std::function<void(const CellResult&)> on_result;
  std::function<void(const CellError&)> on_error;
};

class ExecutionReader {
 public:
  explicit ExecutionReader(ExecutionEvents events = {}) : events_(std::move(events)) {}

  // The next bytes of the body. data_loss: this is no answer of a code interpreter;
  // resource_exhausted: more than anybody needs.
  Result<void> feed(std::string_view bytes);
  // After the last byte. data_loss: it broke off.
  Result<Execution> finish() &&;

  static constexpr std::size_t kMaxLine = 64 << 20;
  static constexpr std::size_t kMaxKept = 512 << 20;  // bytes of all lines

 private:
  Result<void> take(std::string_view line);

  ExecutionEvents events_;
  Execution execution_;
  std::string pending_;  // the beginning of a line
  std::size_t kept_ = 0;
};

}  // namespace atl::client
