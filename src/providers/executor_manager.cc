// The provider `executor-manager`: RAGFlow's self-managed executor, or Atoll's own in its place
// (`atoll up --executor-listen`). One POST /run per run; the other side keeps no instances.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/encoding.h"
#include "base/ids.h"
#include "providers/kind.h"
#include "providers/program.h"
#include "providers/url.h"

namespace atl::providers {
namespace {

constexpr std::string_view kId = "executor-manager";
constexpr Language kLanguages[] = {Language::python, Language::javascript};
constexpr std::chrono::milliseconds kFirstPause{200};
constexpr std::size_t kMaxAnswer = 160 << 20;  // ten artifacts of 10 MB in base64
constexpr int kPoolBusy = -10;
constexpr int kTooManyRequests = -429;
constexpr int kTimedOut = -124;

constexpr Field kFields[] = {
    {.name = "endpoint",
     .label = "Endpoint",
     .description = "Where the executor manager listens",
     .required = true,
     .format = Format::url,
     .placeholder = "http://localhost:9385",
     .otherwise = std::string_view("http://localhost:9385")},
    {.name = "api_key",
     .label = "API key",
     .description = "Only where the other side asks for one (Atoll's executor can)",
     .secret = true},
    {.name = "timeout",
     .type = FieldType::integer,
     .label = "Longest run",
     .description = "Seconds that a run may ask for. The executor has a limit of its own besides",
     .otherwise = std::int64_t(30),
     .range = Range{5, 300},
     .accepted = Range{1, 600}},
    {.name = "max_retries",
     .type = FieldType::integer,
     .label = "Retries",
     .description = "How often a run is tried again that never began: nobody answered, or the pool "
                    "was busy",
     .otherwise = std::int64_t(3),
     .range = Range{0, 10}},
    {.name = "pool_size",
     .type = FieldType::integer,
     .label = "Pool size",
     .description = "Containers that the executor keeps ready; runs at once beyond it wait",
     .scope = Scope::deployment,
     .otherwise = std::int64_t(10),
     .range = Range{1, 100}},
    {.name = "python_image",
     .label = "Python image",
     .description = "Image of the executor's containers (SANDBOX_BASE_PYTHON_IMAGE)",
     .readonly = true,
     .scope = Scope::deployment,
     .otherwise = std::string_view("sandbox-base-python:latest")},
    {.name = "nodejs_image",
     .label = "Node.js image",
     .description = "Image of the executor's containers (SANDBOX_BASE_NODEJS_IMAGE)",
     .readonly = true,
     .scope = Scope::deployment,
     .otherwise = std::string_view("sandbox-base-nodejs:latest")},
    {.name = "max_memory",
     .label = "Memory limit",
     .description = "Of one run (SANDBOX_MAX_MEMORY)",
     .readonly = true,
     .scope = Scope::deployment,
     .otherwise = std::string_view("256m")},
    {.name = "sandbox_timeout",
     .label = "Time limit",
     .description = "Of one run on the executor's side (SANDBOX_TIMEOUT)",
     .readonly = true,
     .scope = Scope::deployment,
     .otherwise = std::string_view("10s")},
    {.name = "enable_seccomp",
     .type = FieldType::boolean,
     .label = "seccomp",
     .description = "Whether system calls of the code are filtered (SANDBOX_ENABLE_SECCOMP)",
     .readonly = true,
     .scope = Scope::deployment,
     .otherwise = false},
};

struct Report {
  Outcome outcome;
  bool busy = false;  // it never began
};

std::string string_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::optional<std::int64_t> integer_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  boost::system::error_code ec;
  const double number = value->to_number<double>(ec);
  if (ec || number > 1e15 || number < -1e15) return std::nullopt;
  return std::int64_t(number);
}

Result<Report> read_report(const std::string& body) {
  auto parsed = parse_json(body);
  json::object* fields = parsed.ok() ? parsed->if_object() : nullptr;
  if (fields == nullptr || string_in(*fields, "status").empty()) {
    return make_error(Errc::unavailable,
                      "the endpoint's answer is not that of an executor manager");
  }
  Report out;
  Outcome& outcome = out.outcome;
  outcome.status = string_in(*fields, "status");
  Extracted said = extract_result(string_in(*fields, "stdout"));
  outcome.out = std::move(said.text);
  outcome.result = std::move(said.value);
  outcome.result_type = std::move(said.type);
  outcome.err = string_in(*fields, "stderr");
  outcome.detail = string_in(*fields, "detail");
  outcome.exit_code = int(integer_in(*fields, "exit_code").value_or(0));
  outcome.took = std::chrono::milliseconds(integer_in(*fields, "time_used_ms").value_or(0));
  outcome.memory_kb = integer_in(*fields, "memory_used_kb");
  if (json::value* artifacts = fields->if_contains("artifacts");
      artifacts != nullptr && artifacts->is_array())
    outcome.artifacts = std::move(artifacts->get_array());
  json::value* result = fields->if_contains("result");
  if (result != nullptr && result->is_object()) {
    json::object& given = result->get_object();
    const json::value* present = given.if_contains("present");
    if (present != nullptr && present->is_bool() && present->get_bool()) {
      json::value* value = given.if_contains("value");
      outcome.result = value != nullptr ? std::move(*value) : json::value(nullptr);
      const std::string type = string_in(given, "type");
      outcome.result_type = type.empty() ? "json" : type;
    }
  }
  out.busy = outcome.status == "program_runner_error" &&
             (outcome.exit_code == kPoolBusy || outcome.exit_code == kTooManyRequests);
  return out;
}

bool timed_out(const Outcome& outcome) {
  return outcome.status == "resource_limit_exceeded" && outcome.exit_code == kTimedOut;
}

class ExecutorManager : public SandboxProvider {
 public:
  net::Task<Result<void>> initialize(json::object config) override {
    ATOLL_CO_TRY_ASSIGN(url_, parse_url(text_of(config, "endpoint")));
    config_ = std::move(config);
    co_return Result<void>();
  }

  // There is nothing to make: every run has a container of its own.
  net::Task<Result<Instance>> create_instance(std::string) override {
    if (!config_) co_return not_initialized(kId);
    auto checking = health_check();
    ATOLL_CO_TRY(co_await std::move(checking));
    Instance instance;
    instance.id = random_uuid4();
    instance.provider = kId;
    instance.metadata = {{"endpoint", url_.str()}};
    co_return instance;
  }

  net::Task<Result<Outcome>> execute(Instance instance, Run run) override {
    if (!config_) co_return not_initialized(kId);
    ATOLL_CO_TRY(check_timeout(run, number_of(*config_, "timeout")));
    if (run.language == Language::bash) co_return unsupported(kId, run.language, kLanguages);
    const bool has_main = defines_main(run.language, run.code);
    if (!has_main && !run.arguments.empty())
      co_return make_error(Errc::invalid_argument,
                           "there are arguments, but the code defines no main()");
    Outgoing request = prepare("POST", "/run");
    request.headers.add("Content-Type", "application/json");
    request.body = json::serialize(
        json::object{{"code_b64", base64_encode(with_main(run.language, run.code))},
                     {"language", run.language == Language::python ? "python" : "nodejs"},
                     {"arguments", run.arguments}});
    const auto deadline = std::chrono::steady_clock::now() + run.timeout;
    auto pause = kFirstPause;
    for (std::int64_t left = number_of(*config_, "max_retries");; --left) {
      request.limit = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (request.limit.count() <= 0) co_return run_timed_out(run);
      bool sent = false;
      auto asking = ask(request, sent);
      auto report = co_await std::move(asking);
      const bool again =
          report.ok() ? report->busy : !sent && report.error().code == Errc::unavailable;
      const bool in_time = std::chrono::steady_clock::now() + pause < deadline;
      if (!again || left <= 0 || !in_time) {
        if (!report.ok() && report.error().code == Errc::deadline_exceeded)
          co_return run_timed_out(run);
        if (!report.ok()) co_return std::move(report).error();
        co_return finished(std::move(*report), instance, has_main);
      }
      net::asio::steady_timer timer(co_await net::asio::this_coro::executor, pause);
      (void)co_await timer.async_wait(net::asio::as_tuple(net::asio::use_awaitable));
      pause *= 2;
    }
  }

  net::Task<Result<void>> destroy(Instance) override {
    if (!config_) co_return not_initialized(kId);
    co_return Result<void>();
  }

  net::Task<Result<void>> health_check() override {
    if (!config_) co_return not_initialized(kId);
    Outgoing request = prepare("GET", "/healthz");
    request.limit = std::chrono::seconds(5);
    auto asking = send(std::move(request));
    ATOLL_CO_TRY_ASSIGN(const Incoming answer, co_await std::move(asking));
    if (answer.status != 200) co_return refusal(answer);
    co_return Result<void>();
  }

  std::span<const Language> supported_languages() const override { return kLanguages; }

 private:
  Outgoing prepare(std::string method, std::string target) const {
    Outgoing request;
    request.method = std::move(method);
    request.url = url_;
    request.target = std::move(target);
    request.max_answer = kMaxAnswer;
    if (const std::string key = text_of(*config_, "api_key"); !key.empty())
      request.headers.add("X-API-Key", key);
    return request;
  }

  Error refusal(const Incoming& answer) const {
    const Errc code = answer.status == 401 || answer.status == 403 ? Errc::unauthenticated
                      : answer.status == 422                       ? Errc::invalid_argument
                                                                   : Errc::unavailable;
    return make_error(code, "the executor manager at " + url_.str() + " answered " +
                                std::to_string(answer.status) + ": " + excerpt(answer.body));
  }

  net::Task<Result<Report>> ask(Outgoing request, bool& sent) const {
    auto asking = send(std::move(request), &sent);
    ATOLL_CO_TRY_ASSIGN(const Incoming answer, co_await std::move(asking));
    if (answer.status != 200) co_return refusal(answer);
    co_return read_report(answer.body);
  }

  static Result<Outcome> finished(Report report, const Instance& instance, bool has_main) {
    if (report.busy) {
      return make_error(Errc::resource_exhausted,
                        "the executor manager is busy: " + report.outcome.err);
    }
    if (timed_out(report.outcome)) {
      return make_error(Errc::deadline_exceeded,
                        "the code did not end within the executor manager's own time limit: " +
                            report.outcome.err);
    }
    Outcome outcome = std::move(report.outcome);
    if (!has_main) outcome.result.reset();  // of the main() that was added
    outcome.instance_id = instance.id;
    return outcome;
  }

  Url url_;
  std::optional<json::object> config_;
};

}  // namespace

Kind executor_manager_kind() {
  Kind kind;
  kind.id = kId;
  kind.label = "Executor manager";
  kind.description = "RAGFlow's self-managed executor, or the executor port of an Atoll server";
  kind.schema = kFields;
  kind.languages = kLanguages;
  kind.make = [](const Surroundings&) -> std::unique_ptr<SandboxProvider> {
    return std::make_unique<ExecutorManager>();
  };
  return kind;
}

}  // namespace atl::providers
