#include "providers/run_inside.h"

#include <algorithm>

#include "base/encoding.h"
#include "base/ids.h"
#include "base/log.h"
#include "client/commands.h"
#include "client/files.h"
#include "providers/deadline.h"
#include "providers/program.h"

namespace atl::providers {
namespace {

constexpr std::size_t kMaxResult = 8 << 20;
constexpr std::size_t kMaxArtifact = 10 << 20;
constexpr std::size_t kMaxArtifacts = 10;
constexpr std::string_view kArtifacts = "artifacts";
// The agent kills at the timeout; past this much more the agent itself is not to be waited for.
constexpr std::chrono::seconds kGrace{10};

std::string_view mime_type_of(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {".png", "image/png"},         {".jpg", "image/jpeg"},      {".jpeg", "image/jpeg"},
      {".svg", "image/svg+xml"},     {".pdf", "application/pdf"}, {".csv", "text/csv"},
      {".json", "application/json"}, {".html", "text/html"},
  };
  for (const auto& [suffix, type] : kTypes) {
    if (name.size() > suffix.size() &&
        net::iequals(name.substr(name.size() - suffix.size()), suffix))
      return type;
  }
  return {};
}

net::Task<Result<void>> place(client::Inside inside, const Program& program,
                              std::string directory) {
  for (const SourceFile& file : program.files) {
    auto writing = client::write_file(inside, directory + "/" + file.name, file.content);
    ATOLL_CO_TRY(co_await std::move(writing));
  }
  auto making = client::make_directory(inside, std::string(kArtifacts));
  auto made = co_await std::move(making);
  if (!made.ok() && made.error().code != Errc::already_exists) co_return std::move(made).error();
  co_return Result<void>();
}

// What main() returned, as the runner left it. Its content is the code's to forge: it is the code's
// own result.
net::Task<void> read_result(client::Inside inside, std::string directory, Outcome& outcome) {
  auto reading = client::read_file(inside, directory + "/result.json", kMaxResult);
  auto text = co_await std::move(reading);
  if (!text.ok()) {
    if (text.error().code == Errc::resource_exhausted) {
      outcome.status = "program_error";
      outcome.detail = "the value of main() is larger than 8 MB";
    }
    co_return;
  }
  auto report = parse_json(*text);
  if (!report.ok() || !report->is_object()) co_return;
  json::object& fields = report->get_object();
  if (json::value* value = fields.if_contains("value")) {
    outcome.result = std::move(*value);
    outcome.result_type = "json";
  }
  if (const json::value* kb = fields.if_contains("memory_used_kb"); kb && kb->is_int64())
    outcome.memory_kb = kb->get_int64();
}

net::Task<void> read_artifacts(client::Inside inside, Outcome& outcome) {
  auto listing = client::list_directory(inside, std::string(kArtifacts));
  auto entries = co_await std::move(listing);
  if (!entries.ok()) co_return;  // the code removed it
  std::sort(entries->begin(), entries->end(),
            [](const client::Entry& a, const client::Entry& b) { return a.name < b.name; });
  for (const client::Entry& entry : *entries) {
    if (outcome.artifacts.size() == kMaxArtifacts) co_return;
    const std::string_view type = mime_type_of(entry.name);
    const bool plain = entry.name.find('/') == std::string::npos && !entry.name.starts_with('.');
    if (type.empty() || !plain || entry.type != client::EntryType::file || entry.size == 0 ||
        entry.size > kMaxArtifact)
      continue;
    auto reading =
        client::read_file(inside, std::string(kArtifacts) + "/" + entry.name, kMaxArtifact);
    auto content = co_await std::move(reading);
    if (!content.ok()) continue;
    outcome.artifacts.push_back(json::object{{"name", entry.name},
                                             {"mime_type", type},
                                             {"size", content->size()},
                                             {"content_b64", base64_encode(*content)}});
  }
}

void classify(const client::Finished& finished, Outcome& outcome) {
  outcome.exit_code = finished.exit_code;
  if (finished.exit_code == 0) return;
  outcome.status = "program_error";
  outcome.detail = finished.status;
  if (finished.exit_code == 128 + 9) {
    outcome.status = "resource_limit_exceeded";
    outcome.detail = "killed, most likely because the sandbox's memory was used up";
  }
}

net::Task<Result<Outcome>> run_program(client::Inside inside, Program program,
                                       std::string directory, Run run) {
  auto placing = place(inside, program, directory);
  ATOLL_CO_TRY(co_await std::move(placing));
  client::Command command;
  command.program = program.program;
  command.arguments = program.arguments;
  command.timeout = run.timeout;
  const auto began = std::chrono::steady_clock::now();
  auto running = client::run_command(inside, std::move(command));
  auto ended = co_await std::move(running);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  // Past its time it is the timeout, whatever became of the processes: the sandbox goes next.
  if (ended.ok() ? ended->timed_out : took >= run.timeout) co_return run_timed_out(run);
  ATOLL_CO_TRY_ASSIGN(const client::Finished finished, std::move(ended));
  Outcome outcome;
  outcome.took = took;
  Extracted said = extract_result(finished.out.text());
  outcome.out = std::move(said.text);
  outcome.err = finished.err.text();
  outcome.result = std::move(said.value);
  outcome.result_type = std::move(said.type);
  outcome.instance_id = inside.id;
  classify(finished, outcome);
  if (program.calls_main && finished.exit_code == 0) {
    auto reading = read_result(inside, directory, outcome);
    co_await std::move(reading);
  }
  auto collecting = read_artifacts(inside, outcome);
  co_await std::move(collecting);
  co_return outcome;
}

}  // namespace

net::Task<Result<Outcome>> run_inside(client::Inside inside, Run run) {
  const std::string directory = ".atoll-run-" + random_hex(8);
  ATOLL_CO_TRY_ASSIGN(Program program,
                      make_program(run.language, run.code, run.arguments, directory));
  const auto limit = run.timeout + kGrace + std::chrono::seconds(20);  // with placing and fetching
  auto running =
      within(run_program(inside, std::move(program), directory, run), limit, run_timed_out(run));
  auto outcome = co_await std::move(running);
  auto removing = within(client::remove_file(inside, directory), kGrace,
                         make_error(Errc::deadline_exceeded, "no answer"));
  if (auto removed = co_await std::move(removing); !removed.ok())
    log::debug("the directory of a run was left in its sandbox",
               {{"sandbox", inside.id}, {"error", removed.error().message}});
  co_return outcome;
}

}  // namespace atl::providers
