#include "mcp/outcome.h"

#include <cerrno>
#include <optional>

#include "base/ids.h"
#include "base/log.h"
#include "mcp/cut.h"

namespace atl::mcp {
namespace {

json::object text_content(std::string_view text) { return {{"type", "text"}, {"text", text}}; }

ToolError internal(const Error& error) {
  const std::string trace = random_hex(8);
  log::error("a tool call failed", {{"trace", trace}, {"error", error.message}});
  return {"internal_error",
          "Internal error. The server's log tells why under trace " + trace + "."};
}

ToolError lost(const std::string& message) {
  return {"sandbox_unavailable", "the sandbox does not answer (" + message +
                                     "); try again: if it is gone, a new one is made"};
}

bool says(const Error& error, std::string_view text) {
  return error.message.find(text) != std::string::npos;
}

// The agent calls internal what the kernel said of a path, in the kernel's words.
std::optional<ToolError> path_error(const Error& error, const std::string& message) {
  const std::string_view text = error.message;
  if (text.ends_with(": not a directory") || says(error, "path is a file: "))
    return ToolError{"not_a_directory", message};
  if (text.ends_with(": file name too long")) return ToolError{"invalid_path", message};
  return std::nullopt;
}

// A fork that failed. The disk has nothing to do with it.
bool is_without_room(const Error& error) {
  return error.sys_errno == EAGAIN || says(error, "no room for one more process") ||
         says(error, "Resource temporarily unavailable");
}

}  // namespace

bool is_lost_sandbox(const Error& error) {
  return error.code == Errc::not_found && says(error, "sandbox") &&
         (says(error, "not found") || says(error, "does not run"));
}

Outcome::Outcome(ToolError error) : fields(std::move(error.more)), is_error(true) {
  texts.push_back(error.message);
  fields["error"] = std::move(error.code);
  fields["message"] = std::move(error.message);
}

json::object Outcome::to_json() const {
  json::array content;
  for (const std::string& text : texts) content.push_back(text_content(text));
  for (const Image& image : images) {
    content.push_back(
        json::object{{"type", "image"}, {"data", image.data}, {"mimeType", image.mime_type}});
  }
  if (content.empty()) content.push_back(text_content(""));
  json::object out;
  out["content"] = std::move(content);
  out["structuredContent"] = fields;
  if (is_error) out["isError"] = true;
  return out;
}

ToolError to_tool_error(const Error& error) {
  const std::string message = to_utf8(error.message);
  if (is_lost_sandbox(error)) return lost(message);
  switch (error.code) {
    case Errc::not_found:
      return {"not_found", message};
    case Errc::invalid_argument:
    case Errc::out_of_range:
    case Errc::failed_precondition:
    case Errc::already_exists:
      return {"invalid_argument", message};
    case Errc::permission_denied:
    case Errc::unauthenticated:
      return {"permission_denied", message};
    case Errc::resource_exhausted:
      if (is_without_room(error)) {
        return {"sandbox_unavailable",
                "the sandbox has no room for one more process (" + message +
                    "); wait until some have ended, or throw it away with reset"};
      }
      return {"no_space", message};
    case Errc::deadline_exceeded:
      return {"timeout", message};
    case Errc::unavailable:
    case Errc::data_loss:
    case Errc::canceled:
    case Errc::aborted:
      return lost(message);
    case Errc::internal:
      if (auto about_path = path_error(error, message)) return std::move(*about_path);
      return internal(error);
    default:
      return internal(error);
  }
}

ToolError to_session_error(const Error& error) {
  const std::string message = to_utf8(error.message);
  switch (error.code) {
    case Errc::invalid_argument:
      return {"invalid_argument", message};
    case Errc::unauthenticated:
    case Errc::permission_denied:
      return {"authentication_required", message};
    case Errc::internal:
    case Errc::unknown: {
      ToolError out = internal(error);
      out.code = "sandbox_unavailable";
      return out;
    }
    default:
      return {"sandbox_unavailable", "the session's sandbox cannot be had: " + message};
  }
}

}  // namespace atl::mcp
