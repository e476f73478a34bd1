// SandboxProvider: one way to run code, whoever runs it: this server's own engine, another Atoll,
// E2B, RAGFlow's executor manager, Alibaba Cloud's code interpreter.
//
// A provider is made by its Kind (registry.h), initialised once with a config that its schema
// completed, and then used by one caller: create an instance, execute in it any number of times,
// destroy it. Before `initialize` all fail with failed_precondition. Calls may be awaited on any
// strand; objects that a call refers to live as long as the provider.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "net/task.h"
#include "providers/language.h"

namespace atl::providers {

struct Instance {
  std::string id;
  std::string provider;
  std::string status = "running";  // "running", "stopped", "error"
  json::object metadata;
};

struct Run {
  std::string code;
  Language language = Language::python;
  std::chrono::seconds timeout{10};
  json::object arguments;  // of main(); with none main() is called all the same if there is one
};

// What came of a run that took place. The words of `status` are those of RAGFlow's executor:
// success, program_error, resource_limit_exceeded, unauthorized_access, program_runner_error.
struct Outcome {
  std::string out;  // without the line that carries the result
  std::string err;
  int exit_code = 0;
  std::string status = "success";
  std::string detail;
  std::chrono::milliseconds took{0};
  std::optional<std::int64_t> memory_kb;  // the most it used, where the other side tells
  std::string instance_id;
  json::array artifacts;              // {name, mime_type, size, content_b64}
  std::optional<json::value> result;  // what main() returned
  std::string result_type;            // "json" when there is a result
};

// {stdout, stderr, exit_code, execution_time, metadata}
json::object to_json(Outcome&& outcome);

class SandboxProvider {
 public:
  virtual ~SandboxProvider() = default;

  // `config` is complete (schema.h). Checks by itself what can be checked without asking anybody.
  virtual net::Task<Result<void>> initialize(json::object config) = 0;
  // `template_name` empty: the one of the settings. Answers when code can be run in it.
  virtual net::Task<Result<Instance>> create_instance(std::string template_name) = 0;
  // Code that fails is an outcome. Errors: deadline_exceeded (the timeout passed and the run was
  // ended), invalid_argument (language, arguments, timeout), and failures of the other side.
  virtual net::Task<Result<Outcome>> execute(Instance instance, Run run) = 0;
  // Fine when it is gone already.
  virtual net::Task<Result<void>> destroy(Instance instance) = 0;
  // Asks the other side, with the credentials: it answers and would let us in.
  virtual net::Task<Result<void>> health_check() = 0;
  virtual std::span<const Language> supported_languages() const = 0;
};

Error not_initialized(std::string_view provider);
Error unsupported(std::string_view provider, Language language, std::span<const Language> all);
// invalid_argument: the run asks for more than `most`, the longest that the settings allow.
Result<void> check_timeout(const Run& run, std::int64_t most);
Error run_timed_out(const Run& run);

}  // namespace atl::providers
