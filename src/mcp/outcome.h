// Outcome: what a tool answers. The fields are the structured content, as the tool's outputSchema
// says; the texts and images are what models read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace atl::mcp {

// A refusal: `code` is for programs (invalid_path, not_found, ...), `message` says what happened
// and what to do next.
struct ToolError {
  std::string code;
  std::string message;
  json::object more = {};  // further fields: the count of an ambiguous match
};

struct Image {
  std::string data;  // base64
  std::string mime_type;
};

struct Outcome {
  json::object fields;
  std::vector<std::string> texts;
  std::vector<Image> images;
  bool is_error = false;

  Outcome() = default;
  Outcome(ToolError error);  // NOLINT(google-explicit-constructor): `return error;` is the point

  // The result of tools/call.
  json::object to_json() const;
};

// A value or a refusal.
template <class T>
class [[nodiscard]] Got {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  Got(ToolError error) : inner_(tl::unexpect, std::move(error)) {}
  Got(T value) : inner_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)
  bool ok() const { return inner_.has_value(); }
  T& operator*() { return *inner_; }
  T* operator->() { return &*inner_; }
  T&& value() && { return std::move(*inner_); }
  ToolError&& error() && { return std::move(inner_.error()); }
  const ToolError& error() const& { return inner_.error(); }

 private:
  tl::expected<T, ToolError> inner_;
};

// not_found of the sandbox itself, not of something in it: to be asked before any other meaning of
// not_found.
bool is_lost_sandbox(const Error& error);
// A failure of the client's functions. not_found and the like are about files; what only the server
// can explain is logged, not shown.
ToolError to_tool_error(const Error& error);
// A failure to get the session's sandbox.
ToolError to_session_error(const Error& error);

}  // namespace atl::mcp
