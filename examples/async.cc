// Several things at once: calls that take long have a twin that returns a future.
#include <atoll/atoll.h>

#include <iostream>
#include <vector>

namespace sdk = atl::sdk;

int main() {
  auto client = sdk::Client::from_environment();
  if (!client.ok()) {
    std::cerr << client.error().message << "\n";
    return 1;
  }
  std::vector<std::future<sdk::Result<sdk::Sandbox>>> making;
  for (int i = 0; i < 3; ++i) making.push_back(sdk::Sandbox::create_async(*client));
  std::vector<sdk::Sandbox> sandboxes;
  for (auto& each : making) {
    auto sandbox = each.get();
    if (!sandbox.ok()) {
      std::cerr << sandbox.error().message << "\n";
      return 1;
    }
    sandboxes.push_back(*sandbox);
  }

  std::vector<std::future<sdk::Result<sdk::Execution>>> runs;
  for (std::size_t i = 0; i < sandboxes.size(); ++i)
    runs.push_back(sandboxes[i].run_code_async(std::to_string(i + 1) + " ** 10"));
  for (auto& run : runs) {
    auto done = run.get();
    std::cout << (done.ok() ? done->text() : done.error().message) << "\n";
  }

  std::vector<std::future<sdk::Result<bool>>> ends;
  for (auto& sandbox : sandboxes) ends.push_back(sandbox.kill_async());
  int killed = 0;
  for (auto& end : ends) {
    if (auto gone = end.get(); gone.ok() && *gone) ++killed;
  }
  std::cout << "killed " << killed << "\n";
  return 0;
}
