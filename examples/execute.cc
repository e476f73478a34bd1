// execute_structured: one fresh sandbox per run, and an answer whatever happens.
//   execute [SECONDS] < code
#include <atoll/atoll.h>

#include <cstdlib>
#include <iostream>
#include <iterator>

namespace sdk = atl::sdk;

int main(int argc, char** argv) {
  const std::string code((std::istreambuf_iterator<char>(std::cin)), {});
  sdk::ExecuteOptions options;
  if (argc > 1) options.timeout = std::chrono::milliseconds(int(std::atof(argv[1]) * 1000));
  const auto done = sdk::execute_structured(sdk::Client::from_environment(), code, options);
  std::cout << done.to_json() << "\n";
  return done.success ? 0 : 1;
}
