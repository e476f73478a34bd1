// What the network costs: the same launches with and without it, in turns, by the clock of the
// client and by the steps.
#include <algorithm>
#include <map>

#include "jail_fixture.h"

namespace atl::testing {
namespace {

class NetworkCost : public JailTest {};

struct Measured {
  std::vector<double> create;
  std::vector<double> destroy;
  std::map<std::string, std::vector<double>> steps;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

TEST_F(NetworkCost, OfACreate) {
  std::map<bool, Measured> all;
  runtime::NetworkPolicy lists;
  for (std::uint32_t i = 0; i < 40; ++i) {
    lists.allow.push_back({Ipv4{0x08080000 + i * 512}, 24});
    lists.deny.push_back({Ipv4{0x01010000 + i * 512}, 24});
  }
  Measured with_lists;
  for (int round = 0; round < 4; ++round) {
    for (const bool network : {false, true}) {
      const std::vector<std::string> options =
          network ? std::vector<std::string>{} : std::vector<std::string>{"--no-network"};
      ASSERT_TRUE(start(options).ok());
      for (int i = 0; i < 3; ++i) destroy(create());  // spare disks are made
      for (int i = 0; i < (network ? 40 : 20); ++i) {
        Measured& into = network && i % 2 == 1 ? with_lists : all[network];
        runtime::SandboxSpec wanted = spec();
        if (network && i % 2 == 1) wanted.network = lists;
        pause_for(std::chrono::milliseconds(30));
        auto begin = std::chrono::steady_clock::now();
        auto created = await(runtime_->create(wanted));
        into.create.push_back(milliseconds_since(begin));
        ASSERT_TRUE(created.ok()) << created.error().message;
        for (const runtime::StepTime& step : created->steps)
          into.steps[step.step].push_back(double(step.took.count()) / 1000);
        begin = std::chrono::steady_clock::now();
        destroy(wanted.id);
        into.destroy.push_back(milliseconds_since(begin));
      }
      stop();
    }
  }
  const auto print = [](const char* name, Measured& m) {
    double sum = 0;
    for (const char* step : {"network.policy", "network.link", "network"})
      sum += median(m.steps[step]);
    std::printf("%-12s create p50 %6.2f ms, destroy p50 %6.2f ms, steps of the network %.2f ms",
                name, median(m.create), median(m.destroy), sum);
    std::printf(" (policy %.2f, link %.2f, inside %.2f)\n", median(m.steps["network.policy"]),
                median(m.steps["network.link"]), median(m.steps["network"]));
  };
  print("no network", all[false]);
  print("network", all[true]);
  print("80 entries", with_lists);
  // What the steps of others pay.
  for (auto& [step, values] : all[true].steps) {
    const double more = median(values) - median(all[false].steps[step]);
    if (more > 0.05 || more < -0.05) std::printf("  %-16s %+.2f ms\n", step.c_str(), more);
  }
  EXPECT_LT(median(all[true].steps["network.policy"]) + median(all[true].steps["network.link"]) +
                median(all[true].steps["network"]),
            2.0);
}

}  // namespace
}  // namespace atl::testing
