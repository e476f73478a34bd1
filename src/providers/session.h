// What is done with a provider as a whole: one run in an instance of its own, and the test of a
// connection.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "providers/kind.h"
#include "providers/settings.h"

namespace atl::providers {

// Creates, executes, destroys whatever came of it.
net::Task<Result<Outcome>> run_once(const Kind& kind, Surroundings surroundings, Loaded settings,
                                    std::string template_name, Run run);

struct Step {
  std::string name;
  std::chrono::milliseconds took{0};
  std::optional<Error> error;
};
// Steps up to the first that failed: initialize, health_check, create, execute (a print of
// something that nobody could guess), destroy (also after an execute that failed).
net::Task<std::vector<Step>> test_connection(const Kind& kind, Surroundings surroundings,
                                             Loaded settings);

}  // namespace atl::providers
