// A terminal inside a sandbox, and a watch on a directory.
#include <atoll/atoll.h>

#include <atomic>
#include <iostream>

namespace sdk = atl::sdk;

int main() {
  auto client = sdk::Client::from_environment();
  if (!client.ok()) {
    std::cerr << client.error().message << "\n";
    return 1;
  }
  auto sandbox = sdk::Sandbox::create(*client);
  if (!sandbox.ok()) {
    std::cerr << sandbox.error().message << "\n";
    return 1;
  }
  if (!sandbox->files().make_dir("watched").ok()) return 1;
  std::promise<std::string> seen;
  std::atomic<bool> told = false;
  auto watch = sandbox->files().watch("watched", [&](const sdk::FileEvent& event) {
    if (event.type == sdk::FileEvent::Type::create && !told.exchange(true))
      seen.set_value(event.name);
  });
  if (!watch.ok()) {
    std::cerr << watch.error().message << "\n";
    return 1;
  }

  std::string screen;
  sdk::PtyOptions options;
  options.columns = 120;
  options.on_data = [&screen](std::string_view text) { screen += text; };
  auto terminal = sandbox->pty().create(options);
  if (!terminal.ok()) {
    std::cerr << terminal.error().message << "\n";
    return 1;
  }
  if (!terminal->send("tput cols; touch watched/file; exit 3\n").ok()) return 1;
  auto ended = terminal->wait();
  if (!ended.ok()) {
    std::cerr << ended.error().message << "\n";
    return 1;
  }
  std::cout << "exit code " << ended->exit_code << ", the terminal said 120: "
            << (ended->out.find("120") != std::string::npos ? "yes" : "no") << "\n";
  auto name = seen.get_future();
  if (name.wait_for(std::chrono::seconds(10)) == std::future_status::ready)
    std::cout << "created: " << name.get() << "\n";
  watch->stop();
  return sandbox->kill().ok() ? 0 : 1;
}
