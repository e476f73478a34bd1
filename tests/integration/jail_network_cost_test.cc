// What the network costs: the same launches with and without it, in turns, by the clock of the
// client and by the steps. A measurement, not a test: run it with
// --gtest_also_run_disabled_tests --gtest_filter=NetworkCost.*
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

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[std::size_t(double(values.size() - 1) * part)];
}
double median(const std::vector<double>& values) { return quantile(values, 0.5); }

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Two wardens side by side, one without a network, asked in turns: whatever else the machine does
// meets all alike.
TEST_F(NetworkCost, DISABLED_OfACreate) {
  ASSERT_TRUE(start().ok());
  runtime::WardenOptions options;
  options.home = home_;
  options.instance = "main";
  options.templates = templates_;
  options.warden_path = ATOLL_WARDEN;
  options.agent_path = ATOLL_PROBE_AGENT;
  options.extra_args = {"--no-network"};
  auto bare = runtime::JailRuntime::start(io_, options);
  ASSERT_TRUE(bare.ok()) << bare.error().message;

  runtime::NetworkPolicy lists;
  for (std::uint32_t i = 0; i < 40; ++i) {
    lists.allow.push_back({Ipv4{0x08080000 + i * 512}, 24});
    lists.deny.push_back({Ipv4{0x01010000 + i * 512}, 24});
  }
  struct Kind {
    const char* name;
    runtime::JailRuntime& runtime;
    runtime::NetworkPolicy policy;
    Measured measured;
  };
  Kind kinds[] = {{"no network", **bare, {}, {}},
                  {"network", *runtime_, {}, {}},
                  {"80 entries", *runtime_, lists, {}}};
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 3; ++i) {
      // Every order of two equally often: a launch pays for what the kernel still has to remove.
      Kind& kind = kinds[(round % 2 == 0 ? i : 2 - i + round / 2) % 3];
      runtime::SandboxSpec wanted = spec();
      wanted.network = kind.policy;
      pause_for(std::chrono::milliseconds(60));
      auto begin = std::chrono::steady_clock::now();
      auto created = await(kind.runtime.create(wanted));
      const double took = milliseconds_since(begin);
      ASSERT_TRUE(created.ok()) << created.error().message;
      begin = std::chrono::steady_clock::now();
      ASSERT_TRUE(await(kind.runtime.destroy(wanted.id)).ok());
      if (round < 5) continue;  // spare disks are made
      kind.measured.create.push_back(took);
      kind.measured.destroy.push_back(milliseconds_since(begin));
      for (const runtime::StepTime& step : created->steps)
        kind.measured.steps[step.step].push_back(double(step.took.count()) / 1000);
    }
  }
  for (Kind& kind : kinds) {
    auto& steps = kind.measured.steps;
    std::printf(
        "%-11s create p10 %5.2f p50 %5.2f ms, destroy p10 %5.2f p50 %5.2f ms; steps p50: "
        "policy %.2f, link %.2f, inside %.2f ms\n",
        kind.name, quantile(kind.measured.create, 0.1), median(kind.measured.create),
        quantile(kind.measured.destroy, 0.1), median(kind.measured.destroy),
        median(steps["network.policy"]), median(steps["network.link"]), median(steps["network"]));
  }
  // What the others' steps pay.
  for (auto& [step, values] : kinds[1].measured.steps) {
    const double more = median(values) - median(kinds[0].measured.steps[step]);
    const auto mean = [](const std::vector<double>& v) {
      double sum = 0;
      for (double one : v) sum += one;
      return v.empty() ? 0 : sum / double(v.size());
    };
    const double mean_more = mean(values) - mean(kinds[0].measured.steps[step]);
    if (more > 0.05 || more < -0.05 || mean_more > 0.3 || mean_more < -0.3)
      std::printf("  %-16s %+.2f ms mean %+.2f\n", step.c_str(), more, mean_more);
  }
  const pid_t warden = (*bare)->warden_pid();
  bare->reset();
  for (int i = 0;
       i < 500 && host("cat /proc/" + std::to_string(warden) + "/comm") == "atoll-warden\n"; ++i)
    pause_for(std::chrono::milliseconds(10));
}

}  // namespace
}  // namespace atl::testing
