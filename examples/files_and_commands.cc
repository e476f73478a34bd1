// Files and commands: write, run, read back, follow what changes, end what takes too long.
#include <atoll/atoll.h>

#include <iostream>

namespace sdk = atl::sdk;

namespace {

int fail(const sdk::Error& error) {
  std::cerr << sdk::name_of(error.code) << ": " << error.message << "\n";
  return 1;
}

}  // namespace

int main() {
  auto client = sdk::Client::from_environment();
  if (!client.ok()) return fail(client.error());
  auto sandbox = sdk::Sandbox::create(*client);
  if (!sandbox.ok()) return fail(sandbox.error());
  sdk::Files files = sandbox->files();
  sdk::Commands commands = sandbox->commands();

  auto written = files.write("notes/names.txt", "carol\nalice\nbob\n");
  if (!written.ok()) return fail(written.error());
  std::cout << "wrote " << *written << "\n";

  auto sorted = commands.run("sort notes/names.txt | tee notes/sorted.txt");
  if (!sorted.ok()) return fail(sorted.error());
  std::cout << sorted->out << "exit code " << sorted->exit_code << "\n";

  auto text = files.read("notes/sorted.txt");
  if (!text.ok()) return fail(text.error());
  auto entries = files.list("notes");
  if (!entries.ok()) return fail(entries.error());
  std::cout << entries->size() << " files, " << text->size() << " bytes\n";

  // It and everything that it started is dead when this returns.
  sdk::CommandOptions impatient;
  impatient.timeout = std::chrono::seconds(1);
  auto slow =
      commands.run("trap '' TERM INT; sleep 1000 & setsid sleep 1001 & sleep 1002", impatient);
  if (!slow.ok()) return fail(slow.error());
  std::cout << "timed out: " << (slow->timed_out ? "yes" : "no") << ", exit code "
            << slow->exit_code << "\n";
  auto left = commands.run(
      "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 100[0-2]' || true");
  if (!left.ok()) return fail(left.error());
  std::cout << "sleeps that are left: " << left->out;

  // A process in the background, and its input.
  auto counter = commands.start("wc -l");
  if (!counter.ok()) return fail(counter.error());
  if (auto sent = counter->send("one\ntwo\n"); !sent.ok()) return fail(sent.error());
  if (auto closed = counter->close_stdin(); !closed.ok()) return fail(closed.error());
  auto counted = counter->wait();
  if (!counted.ok()) return fail(counted.error());
  std::cout << "lines: " << counted->out;

  auto missing = files.read("no/such/file");
  std::cout << "missing: " << (missing.ok() ? "?" : sdk::name_of(missing.error().code)) << "\n";
  return sandbox->kill().ok() ? 0 : 1;
}
