// Code in a sandbox: state is kept between runs, output comes as it is printed.
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
    std::cerr << sdk::name_of(sandbox.error().code) << ": " << sandbox.error().message << "\n";
    return 1;
  }

  sdk::CodeOptions options;
  options.events.on_stdout = [](std::string_view text) { std::cout << text; };
  auto first = sandbox->run_code("x = 6 * 7\nprint('hello from the sandbox')", options);
  auto second = sandbox->run_code("x");
  if (first.ok() && second.ok()) std::cout << "x is " << second->text() << "\n";

  auto failing = sandbox->run_code("1 / 0");
  if (failing.ok() && failing->error) std::cout << "failed with " << failing->error->name << "\n";

  auto context = sandbox->create_context("javascript");
  if (context.ok()) {
    sdk::CodeOptions in_context;
    in_context.context_id = context->id;
    auto result = sandbox->run_code("[1, 2, 3].map(n => n * n).join()", in_context);
    if (result.ok()) std::cout << "javascript says " << result->text() << "\n";
  }
  return sandbox->kill().ok() ? 0 : 1;
}
