// Is a request sandbox traffic, and for which port of which sandbox? Pure functions over the
// request head.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/ids.h"
#include "net/http.h"

namespace atl::proxy {

inline constexpr std::uint16_t kAgentPort = 49983;

// For the control plane.
struct ToApi {};
// For one port of one sandbox.
struct ToSandbox {
  SandboxId id;
  std::uint16_t port = kAgentPort;
};
// For the agent of the sandbox that has this token: old clients send nothing else behind one
// sandbox URL.
struct ToTokenOwner {
  std::string token;
};
// Answered with this plain text.
struct Malformed {
  int status = 400;
  std::string text;
};
using Target = std::variant<ToApi, ToSandbox, ToTokenOwner, Malformed>;

struct TargetRules {
  std::string domain;  // hosts below it are sandbox hosts; empty: only those that look like one
  std::function<bool(std::string_view path)> is_control_path;
};

Target find_target(const net::RequestHead& request, const TargetRules& rules);

// The path decoded once and cleaned of "//", "." and "..", as a server behind us might read it;
// nullopt on a bad escape.
std::optional<std::string> clean_path(std::string_view path);
// Routes of the agent that only the engine may use.
bool is_reserved_route(std::string_view cleaned_path);

// Framing that two parsers could read differently. Empty: none; else what is wrong.
std::string_view find_smuggling(const net::RequestHead& request);

}  // namespace atl::proxy
