#include "client/time_limit.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "client/output.h"

namespace atl::client {
namespace {

namespace asio = net::asio;

constexpr std::chrono::milliseconds kKillTime{15'000};
constexpr std::chrono::milliseconds kAgentSpare{30'000};
constexpr int kTries = 20;
// A sandbox that has all the processes it may have has room for the shell only now and then: those
// of a bomb come and go.
constexpr std::chrono::milliseconds kForRoom{10'000};
constexpr int kDenied = 3;  // exit code of the script: the rest is not its user's
constexpr std::chrono::milliseconds kBetweenTries{10};
constexpr std::chrono::milliseconds kLastWords{2'000};
constexpr std::size_t kMaxPids = 64 << 10;  // bytes of their list

// $1: the mark, $2: the pid. Prints what it may not kill. Nothing but builtins of Bash: where the
// command has taken all processes that there may be, no fork succeeds. What was found once is known
// by its number: its parent may be dead at the next look.
constexpr const char* kScript = R"(
exec 2>/dev/null
mark=ATOLL_COMMAND=$1
declare -A known=([$2]=1)
for ((n = 0; n < 500; n++)); do
  declare -A parent=()
  fresh=
  for dir in /proc/[0-9]*; do
    p=${dir#/proc/}
    read -r stat <$dir/stat || continue
    words=(${stat##*) })  # state, parent and so on
    [[ ${words[0]} == [ZX] ]] && continue
    parent[$p]=${words[1]}
    [[ ${known[$p]} ]] && continue
    env=()
    mapfile -d '' -t env <$dir/environ
    for each in "${env[@]}"; do
      [[ $each == "$mark" ]] && known[$p]=1 fresh=1 && break
    done
  done
  for p in "${!known[@]}"; do
    [[ ${parent[$p]} ]] || unset "known[$p]"
  done
  more=1
  while [[ $more ]]; do
    more=
    for p in "${!parent[@]}"; do
      [[ ! ${known[$p]} && ${known[${parent[$p]}]} ]] && known[$p]=1 fresh=1 more=1
    done
  done
  [[ ${#known[@]} == 0 ]] && exit 0
  [[ $fresh || $n == 0 ]] && signal=STOP || signal=KILL
  denied=()
  for p in "${!known[@]}"; do
    kill -$signal $p || { [[ -d /proc/$p ]] && denied+=($p); }
  done
  [[ $signal == KILL && ${#denied[@]} == ${#known[@]} ]] && echo "${denied[@]}" && exit 3
done
echo "${!known[@]}"
exit 1
)";

net::Task<void> rest(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  (void)co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

struct Ended {
  int exit_code = 0;
  std::string out;
};

// A script inside, without a mark of its own.
net::Task<Result<Ended>> run_script(Inside inside, std::string user,
                                    std::vector<std::string> arguments) {
  Command command;
  command.program = "/bin/bash";
  command.arguments = std::move(arguments);
  command.directory = "/";
  command.user = std::move(user);
  command.timeout = kKillTime;
  auto starting = ProcessStream::start(std::move(inside), std::move(command), {});
  ATOLL_CO_TRY_ASSIGN(ProcessStream stream, co_await std::move(starting));
  OutputKeeper out(kMaxPids);
  for (;;) {
    auto reading = stream.next();
    ATOLL_CO_TRY_ASSIGN(const ProcessEvent event, co_await std::move(reading));
    if (event.kind == ProcessEvent::Kind::out) out.add(event.bytes);
    if (event.kind == ProcessEvent::Kind::end)
      co_return Ended{event.exit_code, std::move(out).finish().head};
  }
}

}  // namespace

net::Task<Result<void>> kill_all_of(Inside inside, Marked command) {
  if (command.mark.empty())
    co_return make_error(Errc::invalid_argument, "an empty mark means everybody");
  Error last = make_error(Errc::unavailable, "some processes do not end");
  const auto room_until = std::chrono::steady_clock::now() + kForRoom;
  for (int tries = 0; tries < kTries;) {
    std::vector<std::string> find = {"-c", kScript, "bash", command.mark,
                                     std::to_string(command.pid)};
    auto finding = run_script(inside, command.user, std::move(find));
    auto ended = co_await std::move(finding);
    if (ended.ok() && ended->exit_code == 0) co_return Result<void>();
    if (ended.ok() && ended->exit_code == kDenied) {
      // Numbers only: the list is the sandbox's word.
      std::vector<std::string> kill = {"-c", "for p in $1; do kill -9 \"$p\"; done", "bash"};
      ended->out.erase(std::remove_if(ended->out.begin(), ended->out.end(),
                                      [](char c) { return c != ' ' && (c < '0' || c > '9'); }),
                       ended->out.end());
      kill.push_back(ended->out);
      auto killing = run_script(inside, "root", std::move(kill));
      (void)co_await std::move(killing);  // the next look tells
      ++tries;
      continue;
    }
    if (ended.ok()) co_return std::move(last).with("processes " + ended->out);
    if (ended.error().code != Errc::resource_exhausted) co_return std::move(ended).error();
    if (std::chrono::steady_clock::now() > room_until)
      co_return make_error(Errc::resource_exhausted, "there is no room for one more process");
    auto waiting = rest(kBetweenTries);
    co_await std::move(waiting);
  }
  co_return last;
}

std::chrono::milliseconds agent_deadline(std::chrono::milliseconds limit) {
  return limit > limit.zero() ? limit + kAgentSpare : limit.zero();
}

struct TimeLimit::State {
  State(const asio::any_io_executor& executor, Inside i, Marked c, std::chrono::milliseconds limit,
        ProcessStream& s)
      : inside(std::move(i)),
        command(std::move(c)),
        stream(&s),
        timer(executor, limit),
        over(executor, asio::steady_timer::time_point::max()) {}
  Inside inside;
  Marked command;
  ProcessStream* stream;     // null: nobody needs the limit any more
  asio::steady_timer timer;  // of the limit, then of the last words
  asio::steady_timer over;   // cancelled when `watch` has ended
  bool done = false;
  bool fired = false;
  Result<void> killed;
};

TimeLimit::TimeLimit(const asio::any_io_executor& executor, Inside inside, Marked command,
                     std::chrono::milliseconds limit, ProcessStream& stream)
    : state_(
          std::make_shared<State>(executor, std::move(inside), std::move(command), limit, stream)) {
  asio::co_spawn(executor, watch(state_), [state = state_](std::exception_ptr failure) {
    if (failure) state->killed = make_error(Errc::internal, "the limit of time failed");
    state->done = true;
    state->over.cancel();
  });
}

TimeLimit::~TimeLimit() {
  state_->stream = nullptr;
  state_->timer.cancel();
}

net::Task<void> TimeLimit::watch(std::shared_ptr<State> state) {
  (void)co_await state->timer.async_wait(asio::as_tuple(asio::use_awaitable));
  if (state->stream == nullptr || state->timer.expiry() > std::chrono::steady_clock::now())
    co_return;
  state->fired = true;
  auto killing = kill_all_of(state->inside, state->command);
  state->killed = co_await std::move(killing);
  // What they said is on its way, then the stream ends. Unless a process that was not found holds
  // it: that one is not waited for.
  if (state->killed.ok() && state->stream != nullptr) {
    state->timer.expires_after(kLastWords);
    (void)co_await state->timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  if (state->stream != nullptr) state->stream->close();
}

net::Task<Result<bool>> TimeLimit::finish() {
  state_->stream = nullptr;
  state_->timer.cancel();
  if (!state_->fired) co_return false;
  while (!state_->done) (void)co_await state_->over.async_wait(asio::as_tuple(asio::use_awaitable));
  if (!state_->killed.ok()) {
    co_return Error(state_->killed.error())
        .with("the command timed out and its processes could not be ended, kill the sandbox");
  }
  co_return true;
}

}  // namespace atl::client
