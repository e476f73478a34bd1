// Network policies: from the command to the kernel and the egress table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/testing/fixture.h"

namespace atl::engine {
namespace {

using std::chrono::seconds;
using testing::Fixture;

SandboxId make(Fixture& f, const std::function<void(CreateCommand&)>& change = {}) {
  auto command = f.command();
  if (change) change(command);
  auto made = f.run(f.engine->create(command));
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made->record.id;
}

TEST(Network, PolicyReachesTheKernelAndTheTable) {
  Fixture f;
  auto bad = f.command();
  bad.network = R"({"denyOut":["example.com"]})";
  EXPECT_EQ(f.run(f.engine->create(bad)).error().code, Errc::invalid_argument);
  EXPECT_TRUE(f.runtime.specs().empty());

  const SandboxId id = make(f, [](CreateCommand& command) {
    command.network = R"({"allowOut":["1.1.1.1"],"maskRequestHost":"x.example"})";
    command.allow_internet = false;
  });
  const auto spec = f.runtime.specs().back();
  ASSERT_EQ(spec.network.allow.size(), 1u);
  EXPECT_EQ(spec.network.allow[0].str(), "1.1.1.1");
  ASSERT_EQ(spec.network.deny.size(), 1u);
  auto entry = f.engine->egress().find(f.runtime.address(id));
  ASSERT_NE(entry, nullptr);
  EXPECT_FALSE(entry->policy.allows(*Ipv4::parse("8.8.8.8")));

  ASSERT_TRUE(
      f.run(f.engine->update_network(f.caller(), id, {.egress = R"({"denyOut":["9.9.9.9"]})"}))
          .ok());
  auto record = f.engine->info(f.caller(), id)->record;
  EXPECT_EQ(record.allow_internet, false) << "only changes when it is given";
  EXPECT_THAT(record.network, ::testing::HasSubstr("maskRequestHost"));
  EXPECT_THAT(record.network, ::testing::Not(::testing::HasSubstr("allowOut")));
  EXPECT_EQ(**f.store->find_sandbox(id), record);
  ASSERT_TRUE(f.run(f.engine->update_network(f.caller(), id, {.allow_internet = true})).ok());
  EXPECT_TRUE(f.runtime.network(id).deny.empty());
  EXPECT_TRUE(
      f.engine->egress().find(f.runtime.address(id))->policy.allows(*Ipv4::parse("8.8.8.8")));

  f.runtime.failing["set_network"] = 1;
  record = f.engine->info(f.caller(), id)->record;
  EXPECT_FALSE(
      f.run(f.engine->update_network(f.caller(), id, {.egress = R"({"denyOut":["9.9.9.9"]})"}))
          .ok());
  EXPECT_EQ(f.engine->info(f.caller(), id)->record, record) << "as it was";
  EXPECT_EQ(**f.store->find_sandbox(id), record);
  EXPECT_EQ(f.run(f.engine->update_network(f.caller(), id, {.egress = R"({"denyOut":["x"]})"}))
                .error()
                .code,
            Errc::invalid_argument);

  // Kept over a pause with a cold boot; gone with the sandbox.
  ASSERT_TRUE(
      f.run(f.engine->update_network(f.caller(), id, {.egress = R"({"denyOut":["9.9.9.9"]})"}))
          .ok());
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, false)).ok());
  ASSERT_TRUE(f.run(f.engine->connect(f.caller(), id, seconds(60))).ok());
  ASSERT_EQ(f.runtime.specs().back().network.deny.size(), 1u);
  EXPECT_EQ(f.runtime.specs().back().network.deny[0].str(), "9.9.9.9");
  const Ipv4 address = f.runtime.address(id);
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
  EXPECT_EQ(f.engine->egress().find(address), nullptr);
}

}  // namespace
}  // namespace atl::engine
