// probe SCENARIO: what the examples do not show. Prints one line per fact; `run` looks at them.
#include <atoll/atoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <iostream>
#include <string>

namespace sdk = atl::sdk;

namespace {

int fail(const sdk::Error& error) {
  std::cout << sdk::name_of(error.code) << ": " << error.message << std::endl;
  return 1;
}

// An engine of its own that is never ended in order: whoever runs this kills it.
int hold() {
  auto client = sdk::Client::embedded();
  if (!client.ok()) return fail(client.error());
  auto sandbox = sdk::Sandbox::create(*client);
  if (!sandbox.ok()) return fail(sandbox.error());
  std::cout << "holding " << sandbox->id() << std::endl;
  ::pause();
  return 0;
}

// Likewise, but whoever runs this kills the engine, and then ends this in order by a line.
int lose() {
  auto client = sdk::Client::embedded();
  if (!client.ok()) return fail(client.error());
  auto sandbox = sdk::Sandbox::create(*client);
  if (!sandbox.ok()) return fail(sandbox.error());
  std::cout << "holding " << sandbox->id() << std::endl;
  std::string line;
  std::getline(std::cin, line);
  return 0;
}

int create(const char* name) {
  auto client = sdk::Client::from_environment();
  if (!client.ok()) return fail(client.error());
  sdk::SandboxOptions options;
  options.template_id = name;
  auto sandbox = sdk::Sandbox::create(*client, options);
  if (!sandbox.ok()) return fail(sandbox.error());
  std::cout << "created" << std::endl;
  return sandbox->kill().ok() ? 0 : 1;
}

// 256 MB in and out again, in bounded memory.
int stream() {
  constexpr std::uint64_t kSize = 256 << 20;
  auto client = sdk::Client::from_environment();
  if (!client.ok()) return fail(client.error());
  auto sandbox = sdk::Sandbox::create(*client);
  if (!sandbox.ok()) return fail(sandbox.error());
  std::uint64_t left = kSize;
  auto sent = sandbox->files().write_from(
      "/tmp/big",
      [&](std::span<char> into) -> std::optional<std::size_t> {
        const std::size_t n = std::size_t(std::min<std::uint64_t>(left, into.size()));
        std::memset(into.data(), 'x', n);
        left -= n;
        return n;
      },
      kSize);
  if (!sent.ok()) return fail(sent.error());
  std::uint64_t got = 0;
  auto read = sandbox->files().read_to("/tmp/big", [&](std::string_view piece) {
    got += piece.size();
    return true;
  });
  if (!read.ok()) return fail(read.error());
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::cout << "streamed " << *sent << " " << got << std::endl;
  std::cout << "memory " << usage.ru_maxrss / 1024 << " MB" << std::endl;
  auto limit = sandbox->files().read("/tmp/big", 1 << 20);
  std::cout << "limited " << (limit.ok() ? "no" : sdk::name_of(limit.error().code)) << std::endl;
  return sandbox->kill().ok() ? 0 : 1;
}

// The life of a sandbox, and what is not there.
int life() {
  auto client = sdk::Client::from_environment();
  if (!client.ok()) return fail(client.error());
  sdk::SandboxOptions options;
  options.metadata = {{"who", "probe"}};
  options.envs = {{"GREETING", "hi"}};
  auto sandbox = sdk::Sandbox::create(*client, options);
  if (!sandbox.ok()) return fail(sandbox.error());
  auto hi = sandbox->commands().run("echo $GREETING; echo oops >&2; exit 7");
  if (!hi.ok()) return fail(hi.error());
  std::cout << "command " << hi->exit_code << " " << hi->out << "stderr " << hi->err;
  sdk::ListOptions mine;
  mine.metadata = {{"who", "probe"}};
  auto listed = sdk::Sandbox::list(*client, mine);
  if (!listed.ok()) return fail(listed.error());
  std::cout << "listed " << listed->size() << std::endl;
  auto again = sdk::Sandbox::connect(*client, sandbox->id());
  if (!again.ok()) return fail(again.error());
  std::cout << "same " << (again->id() == sandbox->id()) << std::endl;
  auto snapshot = sandbox->snapshot();
  if (!snapshot.ok()) return fail(snapshot.error());
  sdk::SandboxOptions from;
  from.template_id = *snapshot;
  auto copy = sdk::Sandbox::create(*client, from);
  if (!copy.ok()) return fail(copy.error());
  std::cout << "copy " << (copy->id() != sandbox->id()) << std::endl;
  if (!copy->kill().ok()) return 1;
  if (auto gone = sdk::Sandbox::delete_snapshot(*client, *snapshot); !gone.ok())
    return fail(gone.error());
  sdk::CommandOptions much;
  much.keep = 1000;
  auto cut = sandbox->commands().run("seq 1 100000", much);
  if (!cut.ok()) return fail(cut.error());
  std::cout << "omitted " << cut->omitted_out << std::endl;
  sdk::CommandOptions strange;
  strange.user = "nobody-here";
  std::cout << "user " << sdk::name_of(sandbox->commands().run("id", strange).error().code)
            << std::endl;
  std::cout << "pid " << *sandbox->commands().kill(99999) << std::endl;
  std::cout << "killed " << *sandbox->kill() << *sandbox->kill() << std::endl;
  std::cout << "dead " << sdk::name_of(sandbox->commands().run("true").error().code) << std::endl;
  std::cout << "code " << sdk::name_of(sandbox->run_code("1").error().code) << std::endl;
  return 0;
}

// What hides from the end of its command: another user, another session, a daemon.
int hide() {
  auto client = sdk::Client::from_environment();
  if (!client.ok()) return fail(client.error());
  auto sandbox = sdk::Sandbox::create(*client);
  if (!sandbox.ok()) return fail(sandbox.error());
  sdk::CommandOptions options;
  options.timeout = std::chrono::seconds(5);
  auto slow = sandbox->commands().run(
      "echo begun; sudo sleep 2001 & (setsid nohup sleep 2002 >/dev/null 2>&1 &); "
      "trap '' TERM INT HUP; sleep 2003",
      options);
  if (!slow.ok()) return fail(slow.error());
  std::cout << "timed out " << slow->timed_out << " " << slow->exit_code << " " << slow->out;
  sdk::CommandOptions root;
  root.user = "root";
  auto left = sandbox->commands().run(
      "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null | "
      "grep -c '^\\(sudo \\)\\?sleep 200[1-3]'",
      root);
  if (!left.ok()) return fail(left.error());
  std::cout << "left " << left->out;
  auto bomb = sandbox->commands().run("b() { b | b & }; b; sleep 2004", options);
  if (!bomb.ok()) {
    // The bomb left no room for what ends it, which says so: the sandbox has to go.
    std::cout << "bomb: " << bomb.error().message << std::endl;
    return sandbox->kill().ok() ? 0 : 1;
  }
  std::cout << "bomb " << bomb->timed_out << std::endl;
  auto count = sandbox->commands().run("set -- /proc/[0-9]*; echo $(( $# < 40 ? 0 : $# ))", root);
  if (!count.ok()) return fail(count.error());
  std::cout << "left " << count->out;
  auto after = sandbox->commands().run("echo still here", root);
  std::cout << (after.ok() ? after->out : after.error().message + "\n");
  return sandbox->kill().ok() ? 0 : 1;
}

// What is not found at the end (no mark, no parent) and holds the command's stdout.
int orphan() {
  auto client = sdk::Client::from_environment();
  if (!client.ok()) return fail(client.error());
  auto sandbox = sdk::Sandbox::create(*client);
  if (!sandbox.ok()) return fail(sandbox.error());
  sdk::CommandOptions options;
  options.timeout = std::chrono::seconds(5);
  const auto began = std::chrono::steady_clock::now();
  auto slow = sandbox->commands().run("echo begun; sudo sh -c 'sleep 1000 &'; sleep 1000", options);
  if (!slow.ok()) return fail(slow.error());
  const auto took = std::chrono::steady_clock::now() - began;
  std::cout << "timed out " << slow->timed_out << " " << slow->exit_code << " " << slow->out;
  // The agent's own deadline is half a minute after the limit.
  std::cout << "in time " << (took < std::chrono::seconds(30)) << std::endl;
  return sandbox->kill().ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "hold") return hold();
  if (what == "lose") return lose();
  if (what == "create" && argc > 2) return create(argv[2]);
  if (what == "stream") return stream();
  if (what == "life") return life();
  if (what == "hide") return hide();
  if (what == "orphan") return orphan();
  std::cerr << "probe hold | lose | create TEMPLATE | stream | life | hide | orphan\n";
  return 2;
}
