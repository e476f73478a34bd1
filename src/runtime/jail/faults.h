// Faults: places where a test makes the warden fail or die. Empty in service: then every check is
// one comparison.
//
// Steps of a launch have the names of the plan; other operations have names of their own
// (operation_steps()). `--die-at STEP` ends the warden by SIGKILL before the step is done,
// `--die-at STEP+` when it is done; `--late-at STEP` lets a step of the warden begin late, so that
// what others do meanwhile is over by then. A step of the new process makes it ask the warden to
// die and go on meanwhile, as it would when the warden is killed from outside.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atl::jail {

struct Faults {
  std::string fail_at;
  std::string die_at;
  std::string late_at;

  // Dies or waits here if told to; then the failure that was asked for, or nothing.
  Result<void> before(std::string_view step) const;
  // Dies here if told to.
  void after(std::string_view step) const;
  bool dies_before(std::string_view step) const { return die_at == step; }
  bool dies_after(std::string_view step) const {
    return die_at.size() == step.size() + 1 && die_at.back() == '+' && die_at.starts_with(step);
  }
};

[[noreturn]] void die_now();

// Steps of destroy, kill, freeze, thaw, prepare, warm, dump and snapshots, in order. A dump that
// was published ends with steps of kill. Those of the process that warm makes can fail too, see
// zygote.h.
std::vector<std::string> operation_steps();

}  // namespace atl::jail
