#include "agent/state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "agent/ca_bundle.h"
#include "base/ids.h"
#include "base/json.h"

namespace atl::agent {
namespace {

constexpr std::size_t kMaxVariables = 10'000;

Result<std::optional<std::string>> string_field(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (!value || value->is_null()) return std::optional<std::string>();
  if (!value->is_string())
    return make_error(Errc::invalid_argument, std::string(name) + " must be a string");
  std::string text(value->get_string());
  if (text.find('\0') != std::string::npos) {
    return make_error(Errc::invalid_argument, std::string(name) + " must not hold a NUL byte");
  }
  return std::optional(std::move(text));
}

Result<std::optional<std::uint64_t>> number_field(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (!value || value->is_null()) return std::optional<std::uint64_t>();
  boost::system::error_code ec;
  const auto number = value->to_number<std::uint64_t>(ec);
  if (ec)
    return make_error(Errc::invalid_argument,
                      std::string(name) + " must be a non-negative whole number");
  return std::optional(number);
}

Result<std::map<std::string, std::string>> parse_variables(const json::value& value) {
  const json::object* object = value.if_object();
  if (!object) return make_error(Errc::invalid_argument, "envVars must be an object of strings");
  if (object->size() > kMaxVariables)
    return make_error(Errc::invalid_argument, "envVars has too many entries");
  std::map<std::string, std::string> out;
  for (const auto& [key, text] : *object) {
    if (!text.is_string())
      return make_error(Errc::invalid_argument, "envVars must be an object of strings");
    std::string name(key);
    std::string content(text.get_string());
    // The kernel's environment is NUL-terminated NAME=value strings.
    if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != std::string::npos ||
        content.find('\0') != std::string::npos) {
      return make_error(Errc::invalid_argument, "envVars: not a possible variable: " + name);
    }
    out.emplace(std::move(name), std::move(content));
  }
  return out;
}

// Reads exactly `count` digits.
std::optional<int> digits(std::string_view text, std::size_t at, std::size_t count) {
  if (at + count > text.size()) return std::nullopt;
  int value = 0;
  for (char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

}  // namespace

std::map<std::string, std::string> parse_environment_file(std::string_view text) {
  std::map<std::string, std::string> out;
  while (!text.empty() && out.size() < kMaxVariables) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t equals = line.find('=');
    const std::string_view name = line.substr(0, equals);
    if (equals == std::string_view::npos || name.empty() ||
        line.find('\0') != std::string_view::npos ||
        name.find_first_of(" \t#\"'") != std::string_view::npos)
      continue;
    std::string_view value = line.substr(equals + 1);
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
        value.front() == value.back())
      value = value.substr(1, value.size() - 2);
    out.insert_or_assign(std::string(name), std::string(value));
  }
  return out;
}

std::optional<std::int64_t> parse_rfc3339(std::string_view text) {
  // 2026-01-02T03:04:05[.123456789](Z|+hh:mm)
  const auto year = digits(text, 0, 4), month = digits(text, 5, 2), day = digits(text, 8, 2);
  const auto hour = digits(text, 11, 2), minute = digits(text, 14, 2), second = digits(text, 17, 2);
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  if (text[4] != '-' || text[7] != '-' || (text[10] != 'T' && text[10] != 't') || text[13] != ':' ||
      text[16] != ':') {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(unsigned(*month)),
                                         std::chrono::day(unsigned(*day))};
  // The range in which nanoseconds since the epoch fit 64 bits.
  if (!date.ok() || *year < 1678 || *year > 2261 || *hour > 23 || *minute > 59 || *second > 60)
    return std::nullopt;
  std::size_t at = 19;
  std::int64_t nanos = 0;
  if (at < text.size() && text[at] == '.') {
    std::int64_t scale = 100'000'000;
    const std::size_t first = ++at;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at, scale /= 10)
      nanos += (text[at] - '0') * scale;
    if (at == first || at - first > 9) return std::nullopt;
  }
  int offset_minutes = 0;
  if (at >= text.size()) return std::nullopt;
  if (text[at] == 'Z' || text[at] == 'z') {
    ++at;
  } else if (text[at] == '+' || text[at] == '-') {
    const auto h = digits(text, at + 1, 2), m = digits(text, at + 4, 2);
    if (!h || !m || text[at + 3] != ':' || *h > 23 || *m > 59) return std::nullopt;
    offset_minutes = (*h * 60 + *m) * (text[at] == '-' ? -1 : 1);
    at += 6;
  }
  if (at != text.size()) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  const std::int64_t seconds = std::int64_t(days) * 86400 + *hour * 3600 + *minute * 60 + *second -
                               std::int64_t(offset_minutes) * 60;
  return seconds * 1'000'000'000 + nanos;
}

Result<InitRequest> parse_init(std::string_view body) {
  InitRequest request;
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) return request;
  ATOLL_TRY_ASSIGN(const json::value document, parse_json(body));
  const json::object* object = document.if_object();
  if (!object) return make_error(Errc::invalid_argument, "the body must be a JSON object");
  ATOLL_TRY_ASSIGN(request.access_token, string_field(*object, "accessToken"));
  if (request.access_token && request.access_token->empty()) request.access_token.reset();
  ATOLL_TRY_ASSIGN(request.default_user, string_field(*object, "defaultUser"));
  ATOLL_TRY_ASSIGN(request.default_workdir, string_field(*object, "defaultWorkdir"));
  ATOLL_TRY_ASSIGN(request.sandbox_id, string_field(*object, "sandboxId"));
  ATOLL_TRY_ASSIGN(request.template_id, string_field(*object, "templateId"));
  ATOLL_TRY_ASSIGN(request.memory_limit, number_field(*object, "memoryLimit"));
  ATOLL_TRY_ASSIGN(const std::optional<std::uint64_t> cpus, number_field(*object, "cpuCount"));
  if (cpus) {
    if (*cpus == 0 || *cpus > 65536)
      return make_error(Errc::invalid_argument, "cpuCount is out of range");
    request.cpu_count = unsigned(*cpus);
  }
  ATOLL_TRY_ASSIGN(request.ca_bundle, string_field(*object, "caBundle"));
  if (request.ca_bundle && request.ca_bundle->empty()) request.ca_bundle.reset();
  if (request.ca_bundle) {
    ATOLL_TRY(check_ca_bundle(*request.ca_bundle));
  }
  ATOLL_TRY_ASSIGN(request.start_command, string_field(*object, "startCommand"));
  ATOLL_TRY_ASSIGN(const std::optional<std::string> timestamp, string_field(*object, "timestamp"));
  if (timestamp) {
    request.timestamp_ns = parse_rfc3339(*timestamp);
    if (!request.timestamp_ns)
      return make_error(Errc::invalid_argument, "timestamp must be an RFC 3339 time");
  }
  const json::value* variables = object->if_contains("envVars");
  if (variables && !variables->is_null()) {
    ATOLL_TRY_ASSIGN(request.env_vars, parse_variables(*variables));
  }
  return request;
}

bool AgentState::apply(InitRequest request, Order order) {
  if (request.timestamp_ns) {
    if (order == Order::newer && last_timestamp_ns_ && *request.timestamp_ns <= *last_timestamp_ns_)
      return false;
    last_timestamp_ns_ = request.timestamp_ns;
  }
  access_token_ = std::move(request.access_token);
  if (request.env_vars) user_vars_ = *std::move(request.env_vars);
  if (request.default_user && !request.default_user->empty())
    default_user_ = *std::move(request.default_user);
  if (request.default_workdir) default_workdir_ = *std::move(request.default_workdir);
  if (request.sandbox_id) internal_vars_["E2B_SANDBOX_ID"] = *std::move(request.sandbox_id);
  if (request.template_id) internal_vars_["E2B_TEMPLATE_ID"] = *std::move(request.template_id);
  if (request.memory_limit) memory_limit_ = request.memory_limit;
  if (request.cpu_count) cpu_count_ = request.cpu_count;
  merge_vars();
  return true;
}

void AgentState::set_default_vars(std::map<std::string, std::string> vars) {
  default_vars_ = std::move(vars);
  merge_vars();
}

// An insertion keeps the value of a name that is there already.
void AgentState::merge_vars() {
  env_vars_ = internal_vars_;
  env_vars_.insert(user_vars_.begin(), user_vars_.end());
  env_vars_.insert(default_vars_.begin(), default_vars_.end());
}

bool AgentState::token_matches(std::string_view given) const {
  return !access_token_ || constant_time_equal(*access_token_, given);
}

Result<void> write_marker_files(const AgentState& state, const std::string& directory) {
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST)
    return errno_error("mkdir " + directory);
  for (const auto& [name, value] : state.internal_vars()) {
    const std::string path = directory + "/." + name;
    const int fd =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return errno_error("open " + path);
    const ssize_t n = ::write(fd, value.data(), value.size());
    const int err = errno;
    ::close(fd);
    if (n != ssize_t(value.size())) return errno_error("write " + path, err);
  }
  return {};
}

}  // namespace atl::agent
