// Copies of a running sandbox, variables and files included; each goes its own way.
#include <atoll/atoll.h>

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
  if (!sandbox->run_code("data = list(range(1000))").ok()) return 1;

  auto copies = sandbox->fork(2);
  if (!copies.ok()) {
    std::cerr << copies.error().message << "\n";
    return 1;
  }
  int factor = 1;
  for (auto& copy : *copies) {
    if (!copy.ok()) {
      std::cerr << copy.error().message << "\n";
      return 1;
    }
    auto sum = copy->run_code("sum(data) * " + std::to_string(++factor));
    if (sum.ok()) std::cout << "copy " << factor - 1 << ": " << sum->text() << "\n";
    if (!copy->kill().ok()) return 1;
  }

  if (auto paused = sandbox->pause(); !paused.ok()) {
    std::cerr << paused.error().message << "\n";
    return 1;
  }
  auto info = sandbox->info();
  if (info.ok()) std::cout << "the first one is " << info->state << "\n";
  if (!sandbox->resume().ok()) return 1;
  auto still = sandbox->run_code("len(data)");
  if (still.ok()) std::cout << "and still has " << still->text() << " numbers\n";
  return sandbox->kill().ok() ? 0 : 1;
}
