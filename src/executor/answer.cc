#include "executor/answer.h"

#include "base/encoding.h"
#include "base/json.h"
#include "executor/marker.h"

namespace atl::executor {
namespace {

constexpr int kTimedOut = -124;
constexpr int kOutOfMemory = -137;
constexpr int kBusy = -10;
constexpr int kRateLimited = -429;
constexpr int kUnsafe = -999;
constexpr int kInternal = -3;
constexpr int kKilled = 128 + 9;

constexpr std::string_view kRunnerError = "program_runner_error";

// Invalid UTF-8 has no place in JSON: what is not text is shown as U+FFFD.
std::string as_text(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto lead = std::uint8_t(bytes.front());
    const std::size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    const std::string_view one = bytes.substr(0, size);
    const bool good = one.size() == size && is_valid_utf8(one);
    out += good ? one : std::string_view("\xef\xbf\xbd");
    bytes.remove_prefix(good ? size : 1);
  }
  return out;
}

json::value or_null(const std::optional<std::string_view>& text) {
  return text ? json::value(json::string(*text)) : json::value(nullptr);
}

Answer runner_error(int exit_code, std::string err, std::string detail) {
  Answer out;
  out.status = kRunnerError;
  out.exit_code = exit_code;
  out.err = std::move(err);
  out.detail = std::move(detail);
  return out;
}

std::optional<std::string> result_of(std::optional<std::string> value,
                                     std::optional<std::string> marked) {
  // main() has the last word, unless it had nothing to say.
  if (marked && (!value || *value == "null")) return marked;
  if (!value) return std::nullopt;
  return R"({"present":true,"value":)" + *value + R"(,"type":"json"})";
}

// Did the code end by Python's MemoryError, or one that is derived from it (numpy's)? The last line
// of a traceback says so: "MemoryError", "package.SomeMemoryError: why".
bool is_memory_error(std::string_view err) {
  while (err.ends_with('\n')) err.remove_suffix(1);
  const std::string_view last = err.substr(err.rfind('\n') + 1);
  const std::string_view name = last.substr(0, last.find(':'));
  return name.ends_with("MemoryError") && name.find(' ') == std::string_view::npos;
}

}  // namespace

Answer answer_of(Ran ran) {
  Unmarked cut = cut_markers(as_text(ran.out));
  Answer out;
  out.out = std::move(cut.out);
  out.err = as_text(ran.err);
  out.exit_code = ran.exit_code;
  out.time_used_ms = ran.took.count();
  out.memory_used_kb = ran.memory_kb;
  if (ran.timed_out) {
    out.status = "resource_limit_exceeded";
    out.exit_code = kTimedOut;
    out.err = "Execution timeout";
    out.resource_limit = "time";
  } else if (ran.exit_code == kKilled && ran.out_of_memory) {
    out.status = "resource_limit_exceeded";
    out.exit_code = kOutOfMemory;
    out.err = "Memory limit exceeded (killed by OOM)";
    out.resource_limit = "memory";
  } else if (ran.exit_code == 0) {
    out.status = "success";
    out.result = result_of(std::move(ran.value), std::move(cut.result));
  } else if (is_memory_error(out.err)) {
    out.status = "resource_limit_exceeded";  // with an exit code and words of its own
    out.resource_limit = "memory";
  } else if (out.err.find("Permission denied") != std::string::npos) {
    out.status = "unauthorized_access";
    out.unauthorized = "file_access";
  } else if (out.err.find("Operation not permitted") != std::string::npos) {
    out.status = "unauthorized_access";
    out.unauthorized = "disallowed_syscall";
  } else {
    out.status = "program_error";
    out.runtime_error = "nonzero_exit";
  }
  return out;
}

Answer busy() { return runner_error(kBusy, "Container pool is busy", "no_available_container"); }

Answer rate_limited() {
  const std::string text = "Too many requests, please try again later";
  return runner_error(kRateLimited, text, text);
}

Answer unsafe(std::string reasons) {
  return runner_error(kUnsafe, std::move(reasons), "Code is unsafe");
}

Answer internal_error(std::string what) {
  return runner_error(kInternal, std::move(what), "internal_error");
}

std::string encode(const Answer& answer) {
  json::object out;
  out["status"] = json::string(answer.status);
  out["stdout"] = answer.out;
  out["stderr"] = answer.err;
  out["exit_code"] = answer.exit_code;
  out["detail"] = or_null(answer.detail);
  out["time_used_ms"] = answer.time_used_ms ? json::value(*answer.time_used_ms) : nullptr;
  out["memory_used_kb"] = answer.memory_used_kb ? json::value(*answer.memory_used_kb) : nullptr;
  out["resource_limit_type"] = or_null(answer.resource_limit);
  out["unauthorized_access_type"] = or_null(answer.unauthorized);
  out["runtime_error_type"] = or_null(answer.runtime_error);
  json::array artifacts;
  for (const Artifact& artifact : answer.artifacts) {
    json::object one;
    one["name"] = artifact.name;
    one["mime_type"] = json::string(artifact.mime_type);
    one["size"] = artifact.size;
    one["content_b64"] = artifact.content_b64;
    artifacts.push_back(std::move(one));
  }
  out["artifacts"] = std::move(artifacts);
  std::string text = json::serialize(out);
  // The result goes in as the text that it is: reading and writing it again would change numbers
  // that a double cannot hold.
  text.pop_back();
  text += R"(,"result":)" + answer.result.value_or("null") + "}";
  return text;
}

}  // namespace atl::executor
