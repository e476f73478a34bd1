// The warden dies at every step of every operation. Whatever was there before is there afterwards,
// whole; what was half made is a leftover; destroy leaves nothing.
#include <signal.h>
#include <unistd.h>

#include <functional>

#include "jail_fixture.h"

namespace atl::testing {
namespace {

using runtime::Condition;
using std::chrono::milliseconds;

class JailCrash : public JailTest {
 protected:
  void begin(std::vector<std::string> extra = {}) {
    auto started = start(std::move(extra));
    ASSERT_TRUE(started.ok()) << started.error().message;
  }

  // "step" and "step+" of each.
  static std::vector<std::string> moments(const std::vector<std::string>& steps) {
    std::vector<std::string> out;
    for (const std::string& step : steps) {
      out.push_back(step);
      if (step != "exec") out.push_back(step + "+");  // there is nobody left to tell
    }
    return out;
  }

  // The warden has died by itself; this side puts its things away.
  void expect_warden_dead(const std::string& moment) {
    const std::string proc = "/proc/" + std::to_string(runtime_->warden_pid()) + "/status";
    for (int i = 0; i < 500; ++i) {
      const std::string status = read_text(proc);
      if (status.empty() || status.find("State:\tZ") != std::string::npos) break;
      pause_for(milliseconds(10));
      if (i == 499) ADD_FAILURE() << "the warden survived " << moment;
    }
    stop();
  }

  runtime::SandboxSpec reboot_of(const SandboxId& id) {
    runtime::SandboxSpec out = spec();
    out.id = id;
    out.disk = runtime::Disk::kept;
    return out;
  }

  // A sandbox with a file in it, made by a warden that then goes.
  SandboxId prepare() {
    begin();
    const SandboxId id = create();
    EXPECT_EQ(inside(id, "echo kept > /home/user/f").code, 0);
    return id;
  }

  void expect_usable(const SandboxId& id, const std::string& moment) {
    const auto now = condition(id);
    ASSERT_TRUE(now.has_value()) << moment << ": lost";
    ASSERT_NE(*now, Condition::leftover) << moment << ": a whole sandbox became a leftover";
    if (*now == Condition::frozen) {
      auto thawed = await(runtime_->thaw(id));
      ASSERT_TRUE(thawed.ok()) << moment << ": " << thawed.error().message;
    }
    if (*now == Condition::dead) {
      auto booted = await(runtime_->create(reboot_of(id)));
      ASSERT_TRUE(booted.ok()) << moment << ": " << booted.error().message;
    }
    EXPECT_EQ(inside(id, "cat /home/user/f").output, "kept\n") << moment;
  }

  void destroy_all(const std::string& moment) {
    auto list = await(runtime_->list());
    ASSERT_TRUE(list.ok());
    for (const auto& found : *list) {
      auto gone = await(runtime_->destroy(found.id));
      EXPECT_TRUE(gone.ok()) << moment << ": " << gone.error().message;
    }
    stop();
    EXPECT_EQ(leaks(), "") << moment;
  }
};

TEST_F(JailCrash, InEveryStepOfCreate) {
  for (const std::string& moment : moments(step_names())) {
    ASSERT_NO_FATAL_FAILURE(begin({"--die-at", moment}));
    const runtime::SandboxSpec wanted = spec();
    auto created = await(runtime_->create(wanted));
    EXPECT_FALSE(created.ok()) << moment;
    expect_warden_dead(moment);
    ASSERT_NO_FATAL_FAILURE(begin());
    const auto now = condition(wanted.id);
    // Nobody was told of it: it is whole only if its mark was written.
    if (moment == "mark+") {
      EXPECT_EQ(now, Condition::running) << moment;
    } else if (now.has_value()) {
      EXPECT_EQ(*now, Condition::leftover) << moment;
      EXPECT_EQ(await(runtime_->freeze(wanted.id)).error().code, Errc::failed_precondition);
      EXPECT_EQ(await(runtime_->kill(wanted.id)).error().code, Errc::failed_precondition);
      auto again = await(runtime_->create(reboot_of(wanted.id)));
      EXPECT_FALSE(again.ok()) << moment;
    }
    destroy_all(moment);
  }
}

TEST_F(JailCrash, InEveryStepOfReboot) {
  const SandboxId id = prepare();
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  stop();
  for (const std::string& moment : moments(step_names("--kept"))) {
    ASSERT_NO_FATAL_FAILURE(begin({"--die-at", moment}));
    EXPECT_FALSE(await(runtime_->create(reboot_of(id))).ok()) << moment;
    expect_warden_dead(moment);
    ASSERT_NO_FATAL_FAILURE(begin());
    ASSERT_NO_FATAL_FAILURE(expect_usable(id, moment));
    ASSERT_TRUE(await(runtime_->kill(id)).ok()) << moment;
    stop();
  }
  ASSERT_NO_FATAL_FAILURE(begin());
  destroy_all("the end");
}

TEST_F(JailCrash, InEveryStepOfKill) {
  for (const bool frozen : {false, true}) {
    for (const std::string& moment : moments(operation_steps("kill"))) {
      const SandboxId id = prepare();
      if (frozen) {
        ASSERT_TRUE(await(runtime_->freeze(id)).ok());
      }
      stop();
      ASSERT_NO_FATAL_FAILURE(begin({"--die-at", moment}));
      EXPECT_FALSE(await(runtime_->kill(id)).ok()) << moment;
      expect_warden_dead(moment);
      ASSERT_NO_FATAL_FAILURE(begin());
      ASSERT_NO_FATAL_FAILURE(expect_usable(id, moment));
      destroy_all(moment);
    }
  }
}

TEST_F(JailCrash, InEveryStepOfFreezeAndThaw) {
  std::vector<std::string> steps = operation_steps("freeze");
  for (const std::string& step : operation_steps("thaw")) steps.push_back(step);
  for (const std::string& moment : moments(steps)) {
    const SandboxId id = prepare();
    const bool thaw = moment.starts_with("thaw");
    if (thaw) {
      ASSERT_TRUE(await(runtime_->freeze(id)).ok());
    }
    stop();
    ASSERT_NO_FATAL_FAILURE(begin({"--die-at", moment}));
    auto done = thaw ? await(runtime_->thaw(id)) : await(runtime_->freeze(id));
    EXPECT_FALSE(done.ok()) << moment;
    expect_warden_dead(moment);
    ASSERT_NO_FATAL_FAILURE(begin());
    if (moment == "freeze.frozen+" || moment == "thaw") {
      EXPECT_EQ(condition(id), Condition::frozen) << moment;
    }
    if (moment == "thaw+" || moment == "freeze.ask") {
      EXPECT_EQ(condition(id), Condition::running) << moment;
    }
    ASSERT_NO_FATAL_FAILURE(expect_usable(id, moment));
    destroy_all(moment);
  }
}

TEST_F(JailCrash, InEveryStepOfDestroy) {
  for (const char* state : {"running", "frozen", "dead"}) {
    for (const std::string& moment : moments(operation_steps("destroy"))) {
      const std::string where = moment + " of a " + state + " one";
      // A dead one has no process to kill.
      if (state == std::string("dead") && moment.starts_with("destroy.kill")) continue;
      const SandboxId id = prepare();
      if (state == std::string("frozen")) {
        ASSERT_TRUE(await(runtime_->freeze(id)).ok());
      }
      if (state == std::string("dead")) {
        ASSERT_TRUE(await(runtime_->kill(id)).ok());
      }
      stop();
      ASSERT_NO_FATAL_FAILURE(begin({"--die-at", moment}));
      EXPECT_FALSE(await(runtime_->destroy(id)).ok()) << where;
      expect_warden_dead(where);
      ASSERT_NO_FATAL_FAILURE(begin());
      const auto now = condition(id);
      if (moment == "destroy.unmark") {
        ASSERT_NO_FATAL_FAILURE(expect_usable(id, where));
      } else if (now.has_value()) {
        EXPECT_EQ(*now, Condition::leftover) << where;
      }
      destroy_all(where);
    }
  }
}

// A slot file without text, as something other than Ranges may leave it.
TEST_F(JailCrash, AnEmptySlotFileIsSwept) {
  const std::string slot = "/run/atoll/ranges/59999";
  ASSERT_NO_FATAL_FAILURE(begin());
  if (::access(slot.c_str(), F_OK) == 0) GTEST_SKIP() << "slot in use";
  EXPECT_EQ(host(": > " + slot), "");
  stop();
  ASSERT_NO_FATAL_FAILURE(begin());
  EXPECT_NE(::access(slot.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace atl::testing
