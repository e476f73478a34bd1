// AgentState: what the control plane told the agent about its sandbox (token, variables, default
// user and directory).
//
// One instance, owned by Agent, touched by its one thread only. It changes by `apply` alone;
// handlers read it anew for every request, because a resume or fork may have replaced everything.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::agent {

// The version of the reference daemon whose behaviour this agent has; SDKs gate features by it.
inline constexpr std::string_view kEnvdVersion = "0.6.13";

// Body of POST /init. Absent fields keep what is set, except the token: absent clears it.
struct InitRequest {
  std::optional<std::string> access_token;
  std::optional<std::map<std::string, std::string>> env_vars;
  std::optional<std::string> default_user;
  std::optional<std::string> default_workdir;
  std::optional<std::string> sandbox_id;
  std::optional<std::string> template_id;
  std::optional<std::int64_t> timestamp_ns;   // since the epoch
  std::optional<std::uint64_t> memory_limit;  // bytes
  std::optional<unsigned> cpu_count;
  std::optional<std::string> ca_bundle;      // PEM to trust
  std::optional<std::string> start_command;  // run once in the life of the agent
};

// Errors: invalid_argument naming the field.
Result<InitRequest> parse_init(std::string_view body);
// RFC 3339 with up to nine fraction digits, as nanoseconds since the epoch.
std::optional<std::int64_t> parse_rfc3339(std::string_view text);

// The lines NAME=value of an environment file (pam_env's /etc/environment), quotes around a value
// removed; others are skipped.
std::map<std::string, std::string> parse_environment_file(std::string_view text);

class AgentState {
 public:
  explicit AgentState(std::string default_user = "root") : default_user_(std::move(default_user)) {}

  // Takes over the request; false if it is not newer than one applied before (then nothing
  // changes). After a restore `any` is right: the clock may be another one.
  enum class Order { newer, any };
  bool apply(InitRequest request, Order order = Order::newer);

  // Empty = every request is allowed.
  const std::optional<std::string>& access_token() const { return access_token_; }
  // Compares in constant time. True if no token is set.
  bool token_matches(std::string_view given) const;
  const std::string& default_user() const { return default_user_; }
  // Empty = the user's home.
  const std::string& default_workdir() const { return default_workdir_; }
  // Variables of every process: the user's, with the internal ones (E2B_SANDBOX, ...) winning.
  const std::map<std::string, std::string>& env_vars() const { return env_vars_; }
  // Defaults of variables that neither the user nor the agent has set.
  void set_default_vars(std::map<std::string, std::string> vars);
  // What the template says in /etc/environment; weaker than all others, and told to no client.
  void set_template_vars(std::map<std::string, std::string> vars) {
    template_vars_ = std::move(vars);
  }
  const std::map<std::string, std::string>& template_vars() const { return template_vars_; }
  // The internal ones alone.
  const std::map<std::string, std::string>& internal_vars() const { return internal_vars_; }
  std::optional<std::uint64_t> memory_limit() const { return memory_limit_; }
  std::optional<unsigned> cpu_count() const { return cpu_count_; }

 private:
  void merge_vars();

  std::optional<std::string> access_token_;
  std::string default_user_;
  std::string default_workdir_;
  std::map<std::string, std::string> user_vars_;
  std::map<std::string, std::string> default_vars_;
  std::map<std::string, std::string> template_vars_;
  std::map<std::string, std::string> internal_vars_{{"E2B_SANDBOX", "true"}};
  std::map<std::string, std::string> env_vars_ = internal_vars_;
  std::optional<std::int64_t> last_timestamp_ns_;
  std::optional<std::uint64_t> memory_limit_;
  std::optional<unsigned> cpu_count_;
};

// Writes one file per internal variable (`.E2B_SANDBOX`, ...) into `directory`, for programs that
// see no environment.
Result<void> write_marker_files(const AgentState& state, const std::string& directory = "/run/e2b");

}  // namespace atl::agent
