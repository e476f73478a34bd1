// What a run does, from a place to a dead sandbox.
#include <charconv>

#include "base/ids.h"
#include "base/log.h"
#include "client/commands.h"
#include "client/files.h"
#include "client/output.h"
#include "executor/members.h"
#include "executor/run.h"
#include "executor/runners.h"

namespace atl::executor {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStart{15'000};      // until the code begins
constexpr milliseconds kCollect{15'000};    // for the report and the artifacts
constexpr milliseconds kCheck{10'000};      // for the static check
constexpr std::chrono::seconds kSpare{60};  // from the limit to the sandbox's own end
constexpr std::size_t kKeep = 8 << 20;      // of stdout, and of stderr
constexpr std::size_t kMaxReport = 64 << 20;
constexpr std::string_view kDirectory = "workspace";  // in the home

client::Command command_for(Language language, std::string_view program) {
  client::Command command;
  if (language == Language::python) {
    command.program = "python3";
    command.arguments = {"-X", "utf8", "-u", "-c", std::string(program)};
    command.envs = {{"PYTHONDONTWRITEBYTECODE", "1"}, {"MPLBACKEND", "Agg"}};
  } else {
    command.program = "node";
    command.arguments = {"-e", std::string(program)};
  }
  command.keep = kKeep;
  command.timeout = milliseconds(0);  // whoever is late is killed with the sandbox (watch)
  return command;
}

}  // namespace

engine::StringMap Executor::metadata_of(Language language) {
  return {{"atoll.executor", std::string(to_string(language))}};
}

engine::CreateCommand Executor::create_command(Language language) const {
  engine::CreateCommand command;
  command.caller = caller_;
  command.template_reference = settings_.template_name;
  command.timeout = std::chrono::ceil<std::chrono::seconds>(settings_.time) + kSpare;
  command.memory_mb = std::uint32_t(settings_.memory_bytes >> 20);
  command.metadata = metadata_of(language);
  command.secure = true;
  command.allow_public_traffic = false;
  if (settings_.offline) command.allow_internet = false;
  return command;
}

bool Executor::is_cancelled(const RunPtr& run) {
  std::lock_guard lock(mutex_);
  return run->cancelled;
}

net::Task<void> Executor::perform(RunPtr run) {
  auto entering = places(run->request.language).enter(settings_.wait);
  auto place = co_await std::move(entering);  // free again when nothing of the run is left
  if (place.ok()) {
    // A library may throw; whoever waits for the answer gets one.
    try {
      auto answering = answer(run);
      run->answer = co_await std::move(answering);
    } catch (const std::exception& e) {
      log::error("a run threw", {{"what", e.what()}});
      run->answer = internal_error("internal error");
    }
  } else {
    run->answer = busy();
  }
  log::info("run", {{"sandbox", run->sandbox ? run->sandbox->str() : ""},
                    {"language", to_string(run->request.language)},
                    {"status", run->answer.status},
                    {"exit_code", std::to_string(run->answer.exit_code)},
                    {"ms", std::to_string(run->answer.time_used_ms.value_or(0))}});
  run->answered.set();
  if (run->sandbox) {
    auto killing = kill(*run->sandbox);
    co_await std::move(killing);
  }
  std::lock_guard lock(mutex_);
  runs_.erase(run);
}

// Leaves the sandbox to the caller.
net::Task<Answer> Executor::answer(RunPtr run) {
  if (is_cancelled(run)) co_return internal_error("cancelled");
  auto creating = engine_.create(create_command(run->request.language));
  auto sandbox = co_await std::move(creating);
  if (!sandbox.ok()) {
    const bool full = sandbox.error().code == Errc::resource_exhausted;
    log::warn("no sandbox for a run", {{"error", sandbox.error().message}});
    co_return full ? busy() : internal_error("no sandbox: " + sandbox.error().message);
  }
  {
    std::lock_guard lock(mutex_);
    run->sandbox = sandbox->record.id;
    if (run->cancelled) co_return internal_error("cancelled");
  }
  auto running = in_sandbox(run, enter_(*sandbox));
  co_return co_await std::move(running);
}

net::Task<Answer> Executor::in_sandbox(RunPtr run, client::Inside inside) {
  if (settings_.static_check) {
    auto checking = check(run, inside);
    auto reasons = co_await std::move(checking);
    if (!reasons.ok()) co_return internal_error("static check: " + reasons.error().message);
    if (!reasons->empty()) co_return unsafe(std::move(*reasons));
  }
  auto executing = execute(run, inside);
  auto ran = co_await std::move(executing);
  if (!ran.ok()) {
    log::warn("a run failed", {{"sandbox", inside.id}, {"error", ran.error().message}});
    co_return internal_error(ran.error().message);
  }
  Answer answer = answer_of(std::move(*ran));
  if (answer.status != "success") co_return answer;
  const auto done = std::make_shared<engine::Completion>();
  tasks_.spawn("watch", watch(run, done, kCollect, Late::sandbox));
  auto collecting = collect_artifacts(inside, std::string(kDirectory) + "/artifacts");
  auto artifacts = co_await std::move(collecting);
  done->set();
  if (!artifacts.ok()) co_return internal_error("artifacts: " + artifacts.error().message);
  answer.artifacts = std::move(*artifacts);
  co_return answer;
}

// The reasons, one a line; empty: none.
net::Task<Result<std::string>> Executor::check(RunPtr run, client::Inside inside) {
  const auto done = std::make_shared<engine::Completion>();
  tasks_.spawn("watch", watch(run, done, kCheck, Late::sandbox));
  client::Command command = command_for(run->request.language, checker_of(run->request.language));
  command.input = run->request.body;
  auto running = client::run_command(inside, std::move(command));
  auto finished = co_await std::move(running);
  done->set();
  if (!finished.ok()) co_return std::move(finished).error();
  if (finished->exit_code != 0) co_return make_error(Errc::internal, finished->err.text());
  std::string reasons = finished->out.text();
  while (!reasons.empty() && reasons.back() == '\n') reasons.pop_back();
  co_return reasons;
}

net::Task<Result<Ran>> Executor::execute(RunPtr run, client::Inside inside) {
  const std::string report_file = "/tmp/.atoll-" + random_hex(16);
  client::Command command = command_for(run->request.language, runner_of(run->request.language));
  command.arguments.emplace_back(kDirectory);
  command.arguments.push_back(report_file);
  command.input = std::move(run->request.body);
  const auto done = std::make_shared<engine::Completion>();
  auto began = std::chrono::steady_clock::now();
  client::OutputKeeper said(kKeep);  // by one that does not come to its end
  client::CommandEvents events;
  events.on_stdout = [&said](std::string_view bytes) { said.add(bytes); };
  // The code's time begins when it does.
  events.on_start = [this, &run, &began, done](std::uint32_t) {
    began = std::chrono::steady_clock::now();
    tasks_.spawn("watch", watch(run, done, settings_.time, Late::code));
  };
  tasks_.spawn("watch", watch(run, done, settings_.time + kStart, Late::sandbox));
  auto running = client::run_command(inside, std::move(command), std::move(events));
  auto finished = co_await std::move(running);
  done->set();
  auto stage = Stage::running;
  const bool in_time = run->stage.compare_exchange_strong(stage, Stage::ended);

  Ran out;
  out.took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - began);
  if (in_time && !finished.ok()) co_return std::move(finished).error();
  if (!in_time) {
    out.timed_out = true;
    out.out = std::move(said).finish().text();
    out.memory_kb = run->memory_kb;
    co_return out;
  }
  out.exit_code = finished->exit_code;
  out.out = finished->out.text();
  out.err = finished->err.text();
  auto asking = engine_.usage(caller_, *run->sandbox);
  if (auto usage = co_await std::move(asking); usage.ok()) {
    out.memory_kb = usage->memory_peak_bytes >> 10;
    out.out_of_memory = usage->oom_kills > 0;
  }
  auto reading = take_report(run, std::move(inside), report_file);
  auto report = co_await std::move(reading);
  if (!report.ok()) {
    // None: the code ended without the runner (os._exit, a signal).
    if (report.error().code == Errc::not_found) co_return out;
    out.exit_code = out.exit_code == 0 ? 1 : out.exit_code;
    out.err += "Error: the value of main() cannot be carried: " + report.error().message + "\n";
    co_return out;
  }
  if (report->memory_kb > 0) out.memory_kb = report->memory_kb;
  out.value = std::move(report->value);
  co_return out;
}

net::Task<Result<Executor::Report>> Executor::take_report(RunPtr run, client::Inside inside,
                                                          std::string file) {
  const auto done = std::make_shared<engine::Completion>();
  tasks_.spawn("watch", watch(run, done, kCollect, Late::sandbox));
  auto reading = client::read_file(std::move(inside), std::move(file), kMaxReport);
  auto text = co_await std::move(reading);
  done->set();
  if (!text.ok()) co_return std::move(text).error();
  Report out;
  const std::size_t end = text->find('\n');
  const std::string_view number = std::string_view(*text).substr(0, end);
  const auto [stop, error] =
      std::from_chars(number.data(), number.data() + number.size(), out.memory_kb);
  if (error != std::errc() || stop != number.data() + number.size())
    co_return make_error(Errc::data_loss, "the runner's report is no such thing");
  if (end == std::string::npos) co_return out;
  text->erase(0, end + 1);
  // It goes out as it is, so it must be what it says.
  ATOLL_CO_TRY(read_members(*text, {}));
  out.value = std::move(*text);
  co_return out;
}

// Kills the sandbox when `done` does not come in time: whoever talks to it sees that.
net::Task<void> Executor::watch(RunPtr run, std::shared_ptr<engine::Completion> done,
                                milliseconds limit, Late late) {
  auto waiting = done->wait(limit);
  if (co_await std::move(waiting)) co_return;
  if (late == Late::code) {
    auto stage = Stage::running;
    if (!run->stage.compare_exchange_strong(stage, Stage::overdue)) co_return;
    auto asking = engine_.usage(caller_, *run->sandbox);
    if (auto usage = co_await std::move(asking); usage.ok())
      run->memory_kb = usage->memory_peak_bytes >> 10;
  }
  auto killing = kill(*run->sandbox);
  co_await std::move(killing);
}

net::Task<void> Executor::kill(SandboxId id) {
  auto killing = engine_.kill(caller_, id);
  auto killed = co_await std::move(killing);
  if (!killed.ok() && killed.error().code != Errc::not_found)
    log::warn("a run's sandbox was not killed; it ends by itself soon",
              {{"sandbox", id.str()}, {"error", killed.error().message}});
}

}  // namespace atl::executor
