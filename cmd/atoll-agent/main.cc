// atoll-agent: PID 1 of a sandbox. Reads its options, prepares the process, composes the Agent and
// runs it.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>

#include "agent/agent.h"
#include "agent/spawn.h"
#include "base/log.h"

namespace atl {
namespace {

constexpr std::uint16_t kDefaultPort = 49983;

constexpr const char* kUsage =
    "usage: atoll-agent --listen-fd N [--port P]   in a sandbox: control plane by the inherited "
    "socket N\n"
    "       atoll-agent --bare [--port P]          alone: default user \"user\", control plane by "
    "TCP too\n"
    "  --port P       TCP port for clients (default 49983; 0 = any free one)\n"
    "  --no-tcp       no TCP listener\n"
    "  --user NAME    user of requests that name none, until /init says otherwise\n"
    "  --interpreter FILE, --interpreter-port P, --kernels DIR   the code interpreter: its "
    "languages "
    "(it is there if\n"
    "                 the file is), port (default 49999) and runners\n";

bool parse_number(std::string_view text, long least, long most, long& out) {
  const auto [stop, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  return ec == std::errc() && stop == text.data() + text.size() && out >= least && out <= most;
}

// nullopt: the arguments make no sense; it was said why.
std::optional<agent::AgentOptions> parse_arguments(int argc, char** argv) {
  agent::AgentOptions options;
  options.port = kDefaultPort;
  const auto refuse = [](std::string_view what) {
    fmt::print(stderr, "atoll-agent: {}\n{}", what, kUsage);
    return std::optional<agent::AgentOptions>();
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--bare") {
      options.control_plane = agent::ControlPlane::any_listener;
      options.default_user = "user";
      continue;
    }
    if (name == "--no-tcp") {
      options.port.reset();
      continue;
    }
    if (i + 1 >= argc) return refuse(fmt::format("unknown option or missing value: {}", name));
    const std::string_view value = argv[++i];
    long number = 0;
    if (name == "--listen-fd") {
      if (!parse_number(value, 3, 1 << 20, number))
        return refuse("--listen-fd needs a descriptor from 3 on");
      options.listen_fd = int(number);
    } else if (name == "--port") {
      if (!parse_number(value, 0, 65535, number))
        return refuse("--port needs a number from 0 to 65535");
      options.port = std::uint16_t(number);
    } else if (name == "--interpreter") {
      options.interpreter.config = value;
    } else if (name == "--interpreter-port") {
      if (!parse_number(value, 0, 65535, number))
        return refuse("--interpreter-port needs a number from 0 to 65535");
      options.interpreter.port = std::uint16_t(number);
    } else if (name == "--kernels") {
      options.interpreter.kernels = value;
    } else if (name == "--user") {
      options.default_user = value;
    } else {
      return refuse(fmt::format("unknown option: {}", name));
    }
  }
  if (!options.listen_fd && !options.port) return refuse("nothing to listen on");
  if (!options.listen_fd && options.control_plane == agent::ControlPlane::host_listener_only) {
    return refuse("--listen-fd or --bare is needed");
  }
  return options;
}

// Descriptors 0 to 2 must exist, or a pipe of a child could get such a number.
void open_standard_descriptors() {
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::open("/dev/null", O_RDWR)) {
    if (fd > 2) {
      ::close(fd);
      return;
    }
  }
}

void write_file(const char* path, std::string_view text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!::write(fd, text.data(), text.size());
  ::close(fd);
}

// The first 64 KiB; empty if there is no such file.
std::string read_beginning(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  std::string text(64 * 1024, '\0');
  const ssize_t n = ::read(fd, text.data(), text.size());
  ::close(fd);
  text.resize(n > 0 ? std::size_t(n) : 0);
  return text;
}

void prepare_process() {
  open_standard_descriptors();
  ::umask(022);
  ::signal(SIGPIPE, SIG_IGN);
  agent::raise_descriptor_limit();
  // The agent must outlive what it serves. Refused without the privilege, which costs only the
  // preference.
  write_file("/proc/self/oom_score_adj", "-1000");
  ::setpriority(PRIO_PROCESS, 0, -20);
}

int run(int argc, char** argv) {
  auto options = parse_arguments(argc, argv);
  if (!options) return 2;
  if (const char* path = std::getenv("PATH"); path && *path) options->path = path;
  // Before the first process of a user could have replaced it.
  if (options->listen_fd)
    options->template_vars = agent::parse_environment_file(read_beginning("/etc/environment"));
  prepare_process();
  boost::asio::io_context io(1);
  agent::Agent agent(io, *std::move(options));
  if (const auto started = agent.start(); !started.ok()) {
    log::error("cannot start", {{"error", started.error().message}});
    return 1;
  }
  if (agent.port() != 0) log::info("listening", {{"port", std::to_string(agent.port())}});
  if (agent.interpreter_port() != 0)
    log::info("code interpreter", {{"port", std::to_string(agent.interpreter_port())}});
  io.run();
  return 0;
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  try {
    return atl::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "atoll-agent: {}\n", e.what());
    return 1;
  }
}
