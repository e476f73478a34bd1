// atoll-warden: makes and removes sandboxes for one server. Root, one thread, listens nowhere.
// Started by the server with a socket; see src/runtime/jail/README.md.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/log.h"
#include "runtime/jail/plan.h"
#include "runtime/jail/ranges.h"
#include "runtime/jail/warden.h"
#include "sys/cgroup.h"

namespace {

using namespace atl;

constexpr const char* kUsage =
    "usage: atoll-warden --control-fd N --home DIR --instance NAME --agent FILE [--templates DIR]\n"
    "                    [--tools DIR] [--kernels DIR] [--no-network]\n"
    "       atoll-warden --dry-run [--id ID] [--template ID] [--memory BYTES] [--disk BYTES] "
    "[--cpu MILLIS] [--pids N] [--kept] [--kept-memory] [--snapshot ID] [--snapshot-memory ID]\n"
    "       atoll-warden --operation-steps   names of the steps of operations other than launches\n"
    "\n"
    "Started by the server, which keeps the other end of the socket. --dry-run prints what a "
    "launch would do.\n"
    "for tests: --fail-at STEP, --die-at STEP or STEP+ (after it), --late-at STEP, "
    "--layers-by-stage, --zygote-forks N, "
    "--unsafe-cgroup2-without-limits MOUNT\n";

struct Arguments {
  jail::WardenConfig config;
  int control_fd = -1;
  bool dry_run = false;
  bool operation_steps = false;
  jail::LaunchSpec spec{"example",
                        "base",
                        "e2b",
                        "00000000-0000-0000-0000-000000000000",
                        512ull << 20,
                        5ull << 30,
                        2000,
                        1024,
                        0,
                        {}};
};

template <class Number>
bool read_number(std::string_view text, Number& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<Arguments> parse(const std::vector<std::string_view>& args) {
  Arguments out;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string_view name = args[i];
    if (name == "--dry-run") {
      out.dry_run = true;
      continue;
    }
    if (name == "--operation-steps") {
      out.operation_steps = true;
      continue;
    }
    if (name == "--kept") {
      out.spec.kept = jail::KeptDisk{jail::kFirstSlot};
      continue;
    }
    if (name == "--kept-memory") {
      out.spec.kept = jail::KeptDisk{jail::kFirstSlot};
      out.spec.memory = runtime::Memory::kept;
      continue;
    }
    if (name == "--no-network") {
      out.config.no_network = true;
      continue;
    }
    if (name == "--layers-by-stage") {
      out.config.layers_by_stage = true;
      continue;
    }
    if (i + 1 == args.size()) return std::nullopt;
    const std::string_view value = args[++i];
    bool good = true;
    if (name == "--control-fd") {
      good = read_number(value, out.control_fd);
    } else if (name == "--home") {
      out.config.home = value;
    } else if (name == "--templates") {
      out.config.templates = value;
    } else if (name == "--tools") {
      out.config.tools = value;
    } else if (name == "--instance") {
      out.config.instance = value;
    } else if (name == "--agent") {
      out.config.agent_path = value;
    } else if (name == "--kernels") {
      out.config.kernels_path = value;
    } else if (name == "--zygote-forks") {
      good = read_number(value, out.config.zygote_forks) && out.config.zygote_forks > 0;
    } else if (name == "--fail-at") {
      out.config.fail_at = value;
    } else if (name == "--die-at") {
      out.config.die_at = value;
    } else if (name == "--late-at") {
      out.config.late_at = value;
    } else if (name == "--unsafe-cgroup2-without-limits") {
      out.config.unsafe_no_limits = true;
      out.config.cgroup_v2_root = value;
    } else if (name == "--snapshot" || name == "--snapshot-memory") {
      out.spec.snapshot = value;
      if (name == "--snapshot-memory") out.spec.memory = runtime::Memory::snapshot;
    } else if (name == "--id") {
      out.spec.id = value;
    } else if (name == "--template") {
      out.spec.template_id = value;
    } else if (name == "--memory") {
      good = read_number(value, out.spec.memory_bytes);
    } else if (name == "--disk") {
      good = read_number(value, out.spec.disk_bytes);
    } else if (name == "--cpu") {
      good = read_number(value, out.spec.cpu_millis);
    } else if (name == "--pids") {
      good = read_number(value, out.spec.pids);
    } else {
      good = false;
    }
    if (!good) return std::nullopt;
  }
  return out;
}

int dry_run(const Arguments& args) {
  jail::HostFacts facts;
  auto layout = sys::detect_cgroup_layout();
  if (!layout) {
    fmt::print(stderr, "atoll-warden: {}\n", layout.error().message);
    return 1;
  }
  facts.cgroups = std::move(*layout);
  facts.network = !args.config.no_network;
  facts.overlay_layers_by_fd = !args.config.layers_by_stage;
  int number = 0;
  for (const jail::Step& step : jail::make_launch_plan(args.spec, facts)) {
    fmt::print("{:2} {}\n", ++number, jail::describe(step));
  }
  return 0;
}

int serve(Arguments args) {
  if (args.control_fd < 0 || args.config.home.empty() || args.config.instance.empty() ||
      args.config.agent_path.empty()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  sys::UniqueFd control(args.control_fd);
  // One spelling per home: it names cgroups and id ranges.
  char resolved[PATH_MAX];
  if (::realpath(args.config.home.c_str(), resolved) != nullptr) args.config.home = resolved;
  if (args.config.templates.empty()) args.config.templates = args.config.home + "/templates";
  if (args.config.tools.empty()) args.config.tools = args.config.home + "/tools";
  ::setsid();  // the terminal's signals are for the server; fails only if it is done already
  ::signal(SIGPIPE, SIG_IGN);
  auto warden = jail::Warden::create(args.config);
  if (!warden) {
    log::error("cannot start", {{"error", warden.error().message}});
    jail::refuse_service(control, warden.error());
    return 1;
  }
  auto served = (*warden)->serve(std::move(control));
  if (!served) {
    log::error("giving up", {{"error", served.error().message}});
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    log::configure(log::Level::info,
                   ::isatty(STDERR_FILENO) ? log::Format::text : log::Format::json);
    auto args = parse(std::vector<std::string_view>(argv + 1, argv + argc));
    if (!args) {
      std::fputs(kUsage, stderr);
      return 2;
    }
    if (args->operation_steps) {
      for (const std::string& step : jail::operation_steps()) fmt::print("{}\n", step);
      return 0;
    }
    return args->dry_run ? dry_run(*args) : serve(std::move(*args));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "atoll-warden: %s\n", error.what());
    return 1;
  }
}
