// The warden dies at every step of every operation. Whatever was there before is there afterwards,
// whole; what was half made is a leftover; destroy leaves nothing.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

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

// One client of the random test and what it was told. Runs until the warden is gone.
struct Client {
  std::optional<SandboxId> id;
  bool told = false;      // its create was answered
  bool leaving = false;   // its destroy was asked for
  int written = 0;        // the last write that was answered
  int writing = 0;        // the last write that was asked for
  std::string complaint;  // an answer that should not have been given
};

struct Load {
  runtime::JailRuntime& runtime;
  std::function<runtime::SandboxSpec()> spec;
  std::mt19937& random;
  int running = 0;
  int operations = 0;
};

net::Task<Result<void>> one_step(Load& load, Client& client) {
  ++load.operations;
  if (!client.id) {
    runtime::SandboxSpec wanted = load.spec();
    client = Client{};
    client.id = wanted.id;
    ATOLL_CO_TRY(co_await load.runtime.create(std::move(wanted)));
    client.told = true;
    co_return Result<void>();
  }
  const SandboxId id = *client.id;
  switch (load.random() % 8) {
    case 0: {
      client.leaving = true;
      ATOLL_CO_TRY(co_await load.runtime.destroy(id));
      client.id.reset();
      break;
    }
    case 1:
    case 2: {
      ATOLL_CO_TRY(co_await load.runtime.freeze(id));
      ATOLL_CO_TRY(co_await load.runtime.thaw(id));
      break;
    }
    case 3:
    case 4: {
      ATOLL_CO_TRY(co_await load.runtime.kill(id));
      runtime::SandboxSpec again = load.spec();
      again.id = id;
      again.disk = runtime::Disk::kept;
      ATOLL_CO_TRY(co_await load.runtime.create(std::move(again)));
      break;
    }
    default: {
      const std::string number = std::to_string(++client.writing);
      auto ran = co_await run_inside(
          load.runtime, id,
          "0\necho " + number + " > /srv/new && mv /srv/new /srv/n && cat /srv/n");
      if (!ran.ok()) co_return std::move(ran).error();
      if (ran->output != number + "\n") co_return make_error(Errc::data_loss, ran->output);
      client.written = client.writing;
    }
  }
  co_return Result<void>();
}

net::Task<void> keep_busy(Load& load, Client& client) {
  for (;;) {
    auto done = co_await one_step(load, client);
    if (done.ok()) continue;
    if (done.error().code != Errc::unavailable) client.complaint = done.error().message;
    break;
  }
  --load.running;
}

TEST_F(JailCrash, AtRandomUnderLoad) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  std::vector<Client> clients(6);
  int operations = 0;
  for (int round = 0; round < 25; ++round) {
    const std::string where = "seed " + std::to_string(seed) + " round " + std::to_string(round);
    ASSERT_NO_FATAL_FAILURE(begin());
    Load load{*runtime_, [this] { return spec(); }, random};
    for (Client& client : clients) {
      ++load.running;
      net::asio::co_spawn(io_, keep_busy(load, client), net::asio::detached);
    }
    pause_for(milliseconds(20 + random() % 400));
    ASSERT_EQ(::kill(runtime_->warden_pid(), SIGKILL), 0);
    for (int i = 0; i < 1000 && load.running > 0; ++i) pause_for(milliseconds(10));
    ASSERT_EQ(load.running, 0) << where << ": every call must end";
    operations += load.operations;
    stop();

    ASSERT_NO_FATAL_FAILURE(begin());
    std::set<std::string> wanted;
    for (Client& client : clients) {
      EXPECT_EQ(client.complaint, "") << where;
      if (!client.id) continue;
      const auto now = condition(*client.id);
      if (client.leaving || !client.told) {
        if (now) {
          EXPECT_TRUE(await(runtime_->destroy(*client.id)).ok()) << where;
        }
        client = Client{};
        continue;
      }
      wanted.insert(client.id->str());
      ASSERT_TRUE(now.has_value()) << where << ": lost";
      ASSERT_NE(*now, Condition::leftover) << where;
      if (*now == Condition::frozen) {
        ASSERT_TRUE(await(runtime_->thaw(*client.id)).ok()) << where;
      }
      // Killed, but not gone yet when the new warden looked.
      auto booted = await(runtime_->kill(*client.id)).ok()
                        ? await(runtime_->create(reboot_of(*client.id)))
                        : Result<runtime::Created>(make_error(Errc::internal, "kill failed"));
      ASSERT_TRUE(booted.ok()) << where << ": " << booted.error().message;
      const int found = std::atoi(inside(*client.id, "cat /srv/n 2>/dev/null").output.c_str());
      EXPECT_TRUE(found == client.written || found == client.writing)
          << where << ": " << found << " instead of " << client.written;
      client.written = client.writing = found;
    }
    auto list = await(runtime_->list());
    ASSERT_TRUE(list.ok());
    for (const auto& left : *list) EXPECT_TRUE(wanted.contains(left.id.str())) << where;
    stop();
  }
  std::printf("%d operations, 25 deaths of the warden\n", operations);
  ASSERT_NO_FATAL_FAILURE(begin());
  destroy_all("the end");
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
