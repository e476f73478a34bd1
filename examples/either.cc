// The same program with an engine of its own, or with a server: one line.
#include <atoll/atoll.h>

#include <cstdlib>
#include <iostream>

namespace sdk = atl::sdk;

namespace {

int use(const sdk::Client& client) {
  auto sandbox = sdk::Sandbox::create(client);
  if (!sandbox.ok()) {
    std::cerr << sdk::name_of(sandbox.error().code) << ": " << sandbox.error().message << "\n";
    return 1;
  }
  auto answer = sandbox->run_code("import platform; platform.system() + ' ' + str(6 * 7)");
  if (!answer.ok()) {
    std::cerr << answer.error().message << "\n";
    return 1;
  }
  std::cout << answer->text() << "\n";
  return sandbox->kill().ok() ? 0 : 1;
}

}  // namespace

int main() {
#ifdef WITH_SERVER
  auto client = sdk::Client::from_environment();
#else
  auto client =
      std::getenv("E2B_API_KEY") ? sdk::Client::from_environment() : sdk::Client::embedded();
#endif
  if (!client.ok()) {
    std::cerr << sdk::name_of(client.error().code) << ": " << client.error().message << "\n";
    return 1;
  }
  return use(*client);
}
