#include "network_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace atl::testing {
namespace {

// The last two stand for a metadata service and a neighbour in the host's own network.
constexpr const char* kAddresses[] = {"1.1.1.1",      "8.8.8.8",         "203.0.113.50",
                                      "203.0.113.60", "169.254.169.254", "10.0.0.5"};

std::string client(const char* kind, const std::string& address, int port,
                   const std::string& text) {
  return std::string("timeout 3 python3 -c 'import socket,sys\n") +
         "s=socket.socket(socket.AF_INET,socket." + kind + ")\ns.settimeout(2)\n" +
         "try:\n s.connect((\"" + address + "\"," + std::to_string(port) + "))\n" +
         (text.empty() ? "" : " s.send(b\"" + text + "\")\n") +
         " sys.stdout.write(s.recv(200).decode())\nexcept OSError: pass\n'";
}

}  // namespace

runtime::NetworkPolicy policy(std::vector<std::string> allow, std::vector<std::string> deny,
                              runtime::Intercept intercept) {
  runtime::NetworkPolicy out;
  for (const std::string& text : allow) out.allow.push_back(*Cidr4::parse(text));
  for (const std::string& text : deny) out.deny.push_back(*Cidr4::parse(text));
  out.intercept = intercept;
  return out;
}

void NetworkTest::SetUp() {
  ASSERT_NO_FATAL_FAILURE(JailTest::SetUp());
  if (IsSkipped()) return;
  log_ = home_ + "/datagrams";
  int in[2];
  int out[2];
  ASSERT_EQ(::pipe2(in, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(out, O_CLOEXEC), 0);
  internet_pid_ = ::fork();
  if (internet_pid_ == 0) {
    if (::unshare(CLONE_NEWNET) != 0) ::_exit(1);
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    std::vector<const char*> argv = {"python3", ATOLL_INTERNET, log_.c_str()};
    argv.insert(argv.end(), std::begin(kAddresses), std::end(kAddresses));
    argv.push_back(nullptr);
    ::execvp("python3", const_cast<char* const*>(argv.data()));
    ::_exit(1);
  }
  ::close(in[0]);
  ::close(out[1]);
  to_internet_ = in[1];
  const std::string pid = std::to_string(internet_pid_);
  // Until the child has its namespace the interface would be created in ours.
  for (int i = 0;
       i < 500 && host("readlink /proc/" + pid + "/ns/net") == host("readlink /proc/self/ns/net");
       ++i)
    ::usleep(10000);
  const std::string there = "nsenter -t " + pid + " -n ip ";
  EXPECT_EQ(host("ip link add inet0 type veth peer name inet1 netns " + pid), "");
  EXPECT_EQ(host("ip address add " + std::string(kHostAddress) + "/24 dev inet0"), "");
  EXPECT_EQ(host("ip address add 10.0.0.1/24 dev inet0; ip link set inet0 up"), "");
  EXPECT_EQ(host(there + "link set lo up; " + there + "link set inet1 up"), "");
  EXPECT_EQ(host(there + "address add 203.0.113.2/24 dev inet1"), "");
  for (const char* address : kAddresses) {
    const bool on_link =
        std::string(address).starts_with("203.") || std::string(address).starts_with("10.");
    EXPECT_EQ(host(there + "address add " + address + (on_link ? "/24" : "/32") + " dev inet1"),
              "");
  }
  EXPECT_EQ(host("ip route add default via 203.0.113.2"), "");
  ASSERT_EQ(::write(to_internet_, "go\n", 3), 3);
  from_internet_ = out[0];
  char ready[16] = {};
  ASSERT_GT(::read(from_internet_, ready, sizeof(ready)), 0) << "no internet";
  EXPECT_EQ(host(": > " + log_), "");
}

void NetworkTest::TearDown() {
  JailTest::TearDown();
  if (internet_pid_ <= 0) return;
  ::close(to_internet_);
  ::close(from_internet_);
  ::kill(internet_pid_, SIGKILL);
  ::waitpid(internet_pid_, nullptr, 0);
  (void)host("ip link delete inet0");  // goes with its other end, a little later
}

void NetworkTest::begin(std::vector<std::string> extra) {
  auto started = start(std::move(extra));
  ASSERT_TRUE(started.ok()) << started.error().message;
}

SandboxId NetworkTest::create_with(runtime::NetworkPolicy policy) {
  runtime::SandboxSpec wanted = spec();
  wanted.network = std::move(policy);
  auto created = await(runtime_->create(wanted));
  EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.error().message);
  if (created.ok()) address_ = created->address;
  return wanted.id;
}

void NetworkTest::set(const SandboxId& id, runtime::NetworkPolicy policy) {
  auto done = await(runtime_->set_network(id, std::move(policy)));
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
}

std::string NetworkTest::tcp(const SandboxId& id, const std::string& address, int port) {
  return inside(id, client("SOCK_STREAM", address, port, "")).output;
}

std::string NetworkTest::udp(const SandboxId& id, const std::string& address, int port,
                             const std::string& text) {
  return inside(id, client("SOCK_DGRAM", address, port, text)).output;
}

std::string NetworkTest::tcp_from_host(const std::string& address, int port) {
  return host(client("SOCK_STREAM", address, port, ""));
}

std::string NetworkTest::in_router(const std::string& command) {
  std::uint64_t hash = 0xcbf29ce484222325;  // as instance_name() in ranges.cc
  for (char c : home_ + "\ntest") hash = (hash ^ std::uint8_t(c)) * 0x100000001b3;
  char name[17];
  std::snprintf(name, sizeof(name), "%016llx", static_cast<unsigned long long>(hash));
  return host("nsenter --net=/run/atoll/net/" + std::string(name) + " sh -c '" + command + "'");
}

}  // namespace atl::testing
