#include "engine/state_machine.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace atl::engine {
namespace {

using S = SandboxState;
using E = Event;

constexpr S kStates[] = {S::creating, S::running, S::pausing, S::paused,
                         S::resuming, S::killing, S::killed,  S::snapshotting};
constexpr E kEvents[] = {E::created,      E::create_failed, E::pause,    E::paused,
                         E::pause_failed, E::resume,        E::resumed,  E::resume_failed,
                         E::kill,         E::gone,          E::snapshot, E::snapshotted};

const std::map<std::pair<S, E>, S> kLegal = {
    {{S::creating, E::created}, S::running},      {{S::creating, E::create_failed}, S::killed},
    {{S::creating, E::kill}, S::killing},         {{S::running, E::pause}, S::pausing},
    {{S::running, E::kill}, S::killing},          {{S::pausing, E::paused}, S::paused},
    {{S::pausing, E::pause_failed}, S::running},  {{S::pausing, E::kill}, S::killing},
    {{S::paused, E::resume}, S::resuming},        {{S::paused, E::kill}, S::killing},
    {{S::resuming, E::resumed}, S::running},      {{S::resuming, E::resume_failed}, S::paused},
    {{S::resuming, E::kill}, S::killing},         {{S::killing, E::gone}, S::killed},
    {{S::running, E::snapshot}, S::snapshotting}, {{S::snapshotting, E::snapshotted}, S::running},
    {{S::snapshotting, E::paused}, S::paused},    {{S::snapshotting, E::kill}, S::killing},
};

TEST(StateMachine, EveryPairOfStateAndEvent) {
  for (S state : kStates) {
    for (E event : kEvents) {
      const auto next = next_state(state, event);
      const auto legal = kLegal.find({state, event});
      if (legal != kLegal.end()) {
        ASSERT_TRUE(next.ok()) << store::to_string(state) << " " << to_string(event);
        EXPECT_EQ(*next, legal->second) << store::to_string(state) << " " << to_string(event);
      } else {
        ASSERT_FALSE(next.ok()) << store::to_string(state) << " " << to_string(event);
        EXPECT_EQ(next.error().code, Errc::failed_precondition);
        EXPECT_NE(next.error().message.find(store::to_string(state)), std::string::npos);
        EXPECT_NE(next.error().message.find(to_string(event)), std::string::npos);
      }
    }
  }
}

TEST(StateMachine, KilledIsFinal) {
  for (E event : kEvents) EXPECT_FALSE(next_state(S::killed, event).ok());
}

TEST(StateMachine, ClientsSeeOnlyLivingSandboxes) {
  const std::set<S> visible = {S::running, S::pausing, S::paused, S::resuming, S::snapshotting};
  for (S state : kStates) EXPECT_EQ(is_visible(state), visible.contains(state));
}

}  // namespace
}  // namespace atl::engine
