// What sandboxes reach and what they do not, against servers in namespaces of the test's own.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "network_fixture.h"
#include "runtime/jail/host_checks.h"

namespace atl::testing {
namespace {

using runtime::Intercept;
using runtime::NetworkPolicy;
using std::chrono::milliseconds;

class JailNetwork : public NetworkTest {
 protected:
  // Takes the server's end of the router and closes it with the test.
  void take_sockets() {
    auto sockets = await(runtime_->egress_sockets());
    ASSERT_TRUE(sockets.ok()) << sockets.error().message;
    ASSERT_GE(sockets->dns_udp, 0);
    give_up_sockets();
    sockets_ = *sockets;
  }
  void give_up_sockets() {
    for (int* fd : {&sockets_.dns_udp, &sockets_.dns_tcp, &sockets_.proxy}) {
      if (*fd >= 0) ::close(*fd);
      *fd = -1;
    }
  }
  void TearDown() override {
    give_up_sockets();
    NetworkTest::TearDown();
  }

  void in_background(const SandboxId& id, const std::string& python) {
    EXPECT_EQ(inside(id, "cat > /tmp/program <<'END'\n" + python +
                             "\nEND\n(timeout 10 python3 /tmp/program > /tmp/out 2>&1 &) ")
                  .code,
              0);
  }
  static bool readable(int fd, int patience_ms = 5000) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, patience_ms) == 1;
  }

  struct Accepted {
    std::string peer;
    std::string original;  // where it was going
  };
  // The next connection to a listening socket; answers `text`.
  std::optional<Accepted> accept_one(int listener, const std::string& text,
                                     int patience_ms = 5000) {
    if (!readable(listener, patience_ms)) return std::nullopt;
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    const int fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC);
    if (fd < 0) return std::nullopt;
    sockaddr_in original{};
    size = sizeof(original);
    constexpr int kOriginalDst = 80;  // SO_ORIGINAL_DST
    Accepted out{::inet_ntoa(peer.sin_addr), ""};
    if (::getsockopt(fd, SOL_IP, kOriginalDst, &original, &size) == 0) {
      out.original = std::string(::inet_ntoa(original.sin_addr)) + ":" +
                     std::to_string(ntohs(original.sin_port));
    }
    EXPECT_EQ(::write(fd, text.data(), text.size()), ssize_t(text.size()));
    ::close(fd);
    return out;
  }
  static std::string connect_and_read(const std::string& address, int port) {
    return "import socket\ns=socket.create_connection((\"" + address + "\"," +
           std::to_string(port) + "),5)\nprint(s.recv(100).decode())";
  }
  std::string output_of(const SandboxId& id) {
    return inside(id,
                  "for i in $(seq 100); do [ -s /tmp/out ] && break; sleep 0.05; done; "
                  "cat /tmp/out; rm -f /tmp/out")
        .output;
  }

  runtime::EgressSockets sockets_;
};

TEST_F(JailNetwork, OpenByDefault) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create_with({});
  EXPECT_NE(address_, Ipv4{});
  for (const char* address : {"1.1.1.1", "8.8.8.8", "203.0.113.50"}) {
    for (int port : {80, 443, 7000}) {
      const std::string answer = tcp(id, address, port);
      EXPECT_TRUE(answer.starts_with("local=" + std::string(address) + ":" + std::to_string(port) +
                                     " peer=" + kHostAddress + ":"))
          << "the world sees the host: " << answer;
    }
    EXPECT_NE(udp(id, address, 7001), "");
  }
  EXPECT_EQ(inside(id, "ping -c 1 -W 2 8.8.8.8").code, 0);
  EXPECT_EQ(inside(id, "cat /etc/resolv.conf").output, "nameserver 198.18.0.1\n");
  EXPECT_EQ(inside(id, "ip -4 -o addr show eth0 | grep -o 'inet [0-9.]*'").output,
            "inet " + address_.str() + "\n");
  auto list = await(runtime_->list());
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ(list->front().address, address_);
}

struct Case {
  NetworkPolicy policy;
  bool one, eight, other;  // 1.1.1.1, 8.8.8.8, 203.0.113.50
};

std::vector<Case> cases() {
  return {
      {policy({}, {"0.0.0.0/0"}), false, false, false},
      {policy({"1.1.1.1"}, {"0.0.0.0/0"}), true, false, false},
      {policy({}, {"8.8.8.8"}), true, false, true},
      {policy({"1.1.1.1", "8.8.8.8"}, {"8.8.8.0/24", "203.0.113.0/24"}), true, true, false},
      {policy({"1.1.1.1"}, {}), true, true, true},
      {policy({"0.0.0.0/0"}, {"8.8.8.8"}), true, true, true},
      {policy({"203.0.113.0/25", "203.0.113.32/27"}, {"0.0.0.0/1", "128.0.0.0/1"}), false, false,
       true},
      {policy({"8.0.0.0/7", "8.8.8.8", "9.0.0.0/8"}, {"0.0.0.0/0"}), false, true, false},
      {policy({}, {"1.0.0.0/8", "8.8.8.8", "8.8.8.9"}), false, false, true},
      {{}, true, true, true},
  };
}

TEST_F(JailNetwork, ListsFromTheStartAndByUpdate) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId updated = create_with({});
  int number = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE("case " + std::to_string(number++));
    const SandboxId fresh = create_with(c.policy);
    set(updated, c.policy);
    for (const SandboxId& id : {fresh, updated}) {
      EXPECT_EQ(reaches(id, "1.1.1.1", 443), c.one);
      EXPECT_EQ(reaches(id, "8.8.8.8", 443), c.eight);
      EXPECT_EQ(reaches(id, "203.0.113.50", 7000), c.other);
      EXPECT_EQ(!udp(id, "8.8.8.8", 7001).empty(), c.eight);
    }
    destroy(fresh);
  }
}

TEST_F(JailNetwork, RefusalsAreToldAtOnce) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create_with(policy({}, {"0.0.0.0/0"}));
  const auto begin_at = std::chrono::steady_clock::now();
  const std::string said =
      inside(id, "curl -sS --connect-timeout 5 http://1.1.1.1/ 2>&1 || true").output;
  EXPECT_LT(std::chrono::steady_clock::now() - begin_at, std::chrono::seconds(3)) << said;
  EXPECT_NE(inside(id, "curl -s --connect-timeout 5 http://1.1.1.1/").code, 0);
}

TEST_F(JailNetwork, PolicyIsInForceBeforeTheFirstInstruction) {
  ASSERT_NO_FATAL_FAILURE(begin());
  // In the order of the plan: the policy, then the interface, then the process that uses it.
  const std::vector<std::string> steps = step_names();
  const auto at = [&](const std::string& name) {
    return std::find(steps.begin(), steps.end(), name) - steps.begin();
  };
  EXPECT_LT(at("network.policy"), at("network.link"));
  EXPECT_LT(at("network.link"), at("handover"));
  EXPECT_LT(at("network"), at("exec"));
}

TEST_F(JailNetwork, NeverReachableWhateverThePolicySays) {
  ASSERT_NO_FATAL_FAILURE(begin());
  ASSERT_NE(tcp_from_host("10.0.0.5", 7000), "") << "the control: the host reaches it";
  ASSERT_NE(tcp_from_host("169.254.169.254", 80), "");
  EXPECT_EQ(
      host("(setsid timeout 100 python3 -m http.server 7000 --bind 0.0.0.0 > /dev/null 2>&1 & "
           "echo $! > " +
           home_ + "/pid)"),
      "");
  for (int i = 0; i < 200 && host("ss -Hltn sport = 7000").empty(); ++i) ::usleep(20000);
  // What a container engine does to publish a port.
  EXPECT_EQ(host("nft 'add table ip published; add chain ip published pre { type nat hook "
                 "prerouting priority dstnat; }; add rule ip published pre tcp dport 8080 dnat to "
                 "203.0.113.60:7000'"),
            "");
  const std::string link = host("ip -4 -o addr | grep -o '198.19.[0-9.]*' | head -1 | tr -d '\\n'");
  ASSERT_FALSE(link.empty());
  const SandboxId neighbour = create_with({});
  const std::string neighbour_address = address_.str();
  in_background(
      neighbour,
      "import http.server\nhttp.server.test(http.server.SimpleHTTPRequestHandler,port=7000)");
  EXPECT_NE(inside(neighbour,
                   "for i in $(seq 100); do curl -s --max-time 3 "
                   "http://127.0.0.1:7000/ && break; sleep 0.05; done")
                .output,
            "")
      << "the control: the neighbour's server answers";
  const SandboxId id = create_with({});
  for (const NetworkPolicy& p :
       {NetworkPolicy{}, policy({"0.0.0.0/0"}, {}),
        policy({"10.0.0.5", "169.254.169.254", kHostAddress, neighbour_address, link},
               {"0.0.0.0/0"}),
        policy({}, {}, Intercept::web)}) {
    set(id, p);
    EXPECT_FALSE(reaches(id, "10.0.0.5", 7000));
    EXPECT_FALSE(reaches(id, "169.254.169.254", 80));
    EXPECT_FALSE(reaches(id, kHostAddress, 7000)) << "a public address of the host";
    EXPECT_FALSE(reaches(id, kHostAddress, 8080)) << "a published port";
    EXPECT_FALSE(reaches(id, link, 7000));
    EXPECT_FALSE(reaches(id, neighbour_address, 7000));
    EXPECT_FALSE(reaches(id, "198.18.0.1", 7000)) << "the gateway";
    EXPECT_EQ(udp(id, "10.0.0.5", 7001), "");
  }
  EXPECT_EQ(host("kill $(cat " + home_ + "/pid) ; nft delete table ip published"), "");
}

TEST_F(JailNetwork, NoPathBetweenSandboxes) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId a = create_with({});
  const std::string address_a = address_.str();
  const SandboxId b = create_with({});
  const std::string address_b = address_.str();
  in_background(b,
                "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                "s.bind((\"0.0.0.0\",9000))\nprint(\"GOT\",s.recv(100))");
  EXPECT_NE(inside(a, "ping -c 1 -W 1 " + address_b).code, 0);
  EXPECT_EQ(udp(a, address_b, 9000), "");
  // By packets of its own making, to groups too. Frames (ARP, IPv6) cannot be sent at all.
  in_background(a,
                "import socket,struct\n"
                "s=socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_RAW)\n"
                "s.setsockopt(socket.SOL_SOCKET,socket.SO_BROADCAST,1)\n"
                "udp=struct.pack(\"!HHHH\",9000,9000,13,0)+b\"frame\"\n"
                "for dst in (\"" +
                    address_b +
                    "\",\"255.255.255.255\",\"224.0.0.1\",\"198.18.255.255\"):\n"
                    " h=struct.pack(\"!BBHHHBBH4s4s\",0x45,0,33,1,0,64,17,0,socket.inet_aton(\"" +
                    address_a +
                    "\"),socket.inet_aton(dst))\n"
                    " try: s.sendto(h+udp,(dst,0))\n except OSError: pass\n"
                    "try: socket.socket(socket.AF_PACKET,socket.SOCK_RAW);print(\"frames\")\n"
                    "except OSError: pass\n"
                    "try:\n"
                    " v6=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM)\n"
                    " v6.sendto(b\"x\",(\"ff02::1\",9000,0,2))\n print(\"ipv6\")\n"
                    "except OSError: pass\nprint(\"sent\")");
  EXPECT_EQ(output_of(a), "sent\n");
  pause_for(milliseconds(300));
  EXPECT_EQ(inside(b, "cat /tmp/out").output, "");
  EXPECT_EQ(inside(b, "ip neigh; cat /proc/net/arp | wc -l").output.find("REACHABLE"),
            std::string::npos);
  for (const SandboxId& id : {a, b}) {
    EXPECT_EQ(inside(id, "ip -6 -o addr | grep -v '::1/128' | wc -l").output, "0\n");
    EXPECT_EQ(inside(id, "ip -6 route show default | wc -l").output, "0\n");
  }
  EXPECT_EQ(in_router("ip -6 -o addr"), "");
}

TEST_F(JailNetwork, SpoofedSourcesAreDropped) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId victim = create_with({});
  const std::string stolen = address_.str();
  const SandboxId id = create_with({});
  const std::string own = address_.str();
  in_background(
      id,
      "import socket,struct\ns=socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_RAW)\n"
      "for name,src in ((\"own\",\"" +
          own + "\"),(\"stolen\",\"" + stolen +
          "\"),(\"foreign\",\"9.9.9.9\"),(\"gateway\",\"198.18.0.1\"),(\"host\",\"" + kHostAddress +
          "\"),(\"zero\",\"127.0.0.1\")):\n"
          " data=name.encode()\n"
          " udp=struct.pack(\"!HHHH\",7777,7001,8+len(data),0)+data\n"
          " h=struct.pack(\"!BBHHHBBH4s4s\",0x45,0,20+len(udp),1,0,64,17,0,"
          "socket.inet_aton(src),socket.inet_aton(\"8.8.8.8\"))\n"
          " s.sendto(h+udp,(\"8.8.8.8\",0))\nprint(\"sent\")");
  EXPECT_EQ(output_of(id), "sent\n");
  for (int i = 0; i < 100 && datagrams().find("own") == std::string::npos; ++i)
    pause_for(milliseconds(20));
  pause_for(milliseconds(200));
  EXPECT_EQ(datagrams(), std::string(kHostAddress) + " own\n");
}

TEST_F(JailNetwork, GuestRootCannotChangeItsNetwork) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create_with(policy({}, {"0.0.0.0/0"}));
  for (const char* command :
       {"ip link set eth0 down", "ip address add 198.18.1.2/32 dev eth0",
        "ip route add 9.9.9.9 dev eth0", "ip link add x type dummy", "ip link set eth0 arp on",
        "ip link set eth0 address 02:00:00:00:00:01", "ip netns add x", "ip rule add table 5",
        "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6",
        "echo 1 > /proc/sys/net/ipv4/ip_forward", "unshare -n true", "unshare -Urn true"}) {
    EXPECT_NE(inside(id, command).code, 0) << command;
  }
  EXPECT_EQ(inside(id,
                   "python3 -c 'print(int(open(\"/proc/self/status\").read().split(\"CapBnd:\")"
                   "[1].split()[0],16)>>12&1)'")
                .output,
            "0\n")
      << "CAP_NET_ADMIN";
  EXPECT_FALSE(reaches(id, "1.1.1.1", 80));
}

TEST_F(JailNetwork, PolicyOutlivesFreezeWardenAndReboot) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const NetworkPolicy only_one = policy({"1.1.1.1"}, {"0.0.0.0/0"});
  const SandboxId id = create_with(only_one);
  const Ipv4 address = address_;
  const SandboxId closed = create_with(policy({}, {"0.0.0.0/0"}));
  const auto check = [&](const char* when) {
    EXPECT_TRUE(reaches(id, "1.1.1.1", 80)) << when;
    EXPECT_FALSE(reaches(id, "8.8.8.8", 80)) << when;
    EXPECT_FALSE(reaches(closed, "1.1.1.1", 80)) << when;
  };
  check("at first");
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  check("thawed");

  // A program that connects again and again while there is no warden.
  EXPECT_EQ(inside(id,
                   "cat > /tmp/loop <<'END'\nimport socket,time\nfor i in range(60):\n"
                   " for a in (\"1.1.1.1\",\"8.8.8.8\"):\n"
                   "  try: r=socket.create_connection((a,80),1).recv(50).decode()[:13]\n"
                   "  except OSError: r=\"none\"\n"
                   "  print(time.time(),a,r,flush=True)\n time.sleep(0.05)\nEND\n"
                   "(timeout 20 python3 /tmp/loop > /tmp/loop.out 2>&1 &)")
                .code,
            0);
  pause_for(milliseconds(300));
  kill_warden();
  const double dead = double(::time(nullptr)) + 1;
  pause_for(milliseconds(2500));
  ASSERT_NO_FATAL_FAILURE(begin());
  const std::string seen = inside(id, "cat /tmp/loop.out").output;
  EXPECT_EQ(seen.find("8.8.8.8 local"), std::string::npos) << seen;
  std::istringstream lines(seen);
  int meanwhile = 0;
  for (std::string line; std::getline(lines, line);) {
    if (std::atof(line.c_str()) > dead && line.find("1.1.1.1 local") != std::string::npos)
      ++meanwhile;
  }
  EXPECT_GT(meanwhile, 3) << "the network must go on without a warden: " << seen;
  check("adopted");
  auto list = await(runtime_->list());
  ASSERT_TRUE(list.ok());
  for (const auto& found : *list) {
    if (found.id == id) EXPECT_EQ(found.address, address);
    EXPECT_NE(found.address, Ipv4{});
  }
  // A policy of an earlier warden can be replaced.
  set(id, policy({"8.8.8.8"}, {"0.0.0.0/0"}));
  EXPECT_FALSE(reaches(id, "1.1.1.1", 80));
  EXPECT_TRUE(reaches(id, "8.8.8.8", 80));
  set(id, only_one);

  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  runtime::SandboxSpec again = spec();
  again.id = id;
  again.disk = runtime::Disk::kept;
  again.network = only_one;
  auto booted = await(runtime_->create(again));
  ASSERT_TRUE(booted.ok()) << booted.error().message;
  EXPECT_EQ(booted->address, address);
  check("booted again");
}

TEST_F(JailNetwork, DnsGoesToTheServerAndNowhereElse) {
  ASSERT_NO_FATAL_FAILURE(begin());
  ASSERT_NO_FATAL_FAILURE(take_sockets());
  for (const NetworkPolicy& p : {NetworkPolicy{}, policy({}, {"0.0.0.0/0"}),
                                 policy({}, {}, Intercept::web), policy({}, {}, Intercept::tcp)}) {
    const SandboxId id = create_with(p);
    in_background(id,
                  "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                  "s.settimeout(5)\ns.connect((\"198.18.0.1\",53))\ns.send(b\"question\")\n"
                  "print(s.recv(100).decode())");
    ASSERT_TRUE(readable(sockets_.dns_udp));
    char text[64] = {};
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    EXPECT_EQ(::recvfrom(sockets_.dns_udp, text, sizeof(text), 0,
                         reinterpret_cast<sockaddr*>(&peer), &size),
              8);
    EXPECT_EQ(std::string(text), "question");
    EXPECT_EQ(::inet_ntoa(peer.sin_addr), address_.str());
    EXPECT_EQ(::sendto(sockets_.dns_udp, "answer", 6, 0, reinterpret_cast<sockaddr*>(&peer), size),
              6);
    EXPECT_EQ(output_of(id), "answer\n");

    in_background(id, connect_and_read("198.18.0.1", 53));
    auto accepted = accept_one(sockets_.dns_tcp, "by tcp");
    ASSERT_TRUE(accepted.has_value());
    EXPECT_EQ(accepted->peer, address_.str());
    EXPECT_EQ(output_of(id), "by tcp\n");

    EXPECT_EQ(udp(id, "1.1.1.1", 53), "");
    EXPECT_EQ(tcp(id, "1.1.1.1", 53), "");
    destroy(id);
  }
  EXPECT_EQ(datagrams(), "");
}

TEST_F(JailNetwork, InterceptedConnectionsTellWhereTheyWereGoing) {
  ASSERT_NO_FATAL_FAILURE(begin());
  ASSERT_NO_FATAL_FAILURE(take_sockets());
  const SandboxId id = create_with(policy({"1.1.1.1"}, {"0.0.0.0/0"}, Intercept::web));
  const auto expect_intercepted = [&](const std::string& address, int port) {
    in_background(id, connect_and_read(address, port));
    auto accepted = accept_one(sockets_.proxy, "from the proxy");
    ASSERT_TRUE(accepted.has_value()) << address << ":" << port;
    EXPECT_EQ(accepted->peer, address_.str());
    EXPECT_EQ(accepted->original, address + ":" + std::to_string(port));
    EXPECT_EQ(output_of(id), "from the proxy\n");
  };
  const auto expect_nothing_intercepted = [&] { EXPECT_FALSE(readable(sockets_.proxy, 100)); };
  expect_intercepted("1.1.1.1", 443);
  expect_intercepted("9.9.9.9", 80);  // denied or not: the proxy decides
  EXPECT_TRUE(reaches(id, "1.1.1.1", 7000));
  EXPECT_FALSE(reaches(id, "8.8.8.8", 7000));
  EXPECT_FALSE(reaches(id, "169.254.169.254", 80));
  EXPECT_FALSE(reaches(id, "10.0.0.5", 80));
  EXPECT_FALSE(reaches(id, "198.18.0.1", 3128)) << "the proxy's own address";
  expect_nothing_intercepted();

  set(id, policy({}, {}, Intercept::tcp));
  expect_intercepted("8.8.8.8", 7000);
  expect_intercepted("1.1.1.1", 22);
  EXPECT_EQ(udp(id, "8.8.8.8", 7001), "");
  EXPECT_NE(inside(id, "ping -c 1 -W 1 8.8.8.8").code, 0);
  EXPECT_FALSE(reaches(id, "169.254.169.254", 80));
  expect_nothing_intercepted();

  set(id, {});
  EXPECT_TRUE(reaches(id, "8.8.8.8", 443));
  expect_nothing_intercepted();
}

TEST_F(JailNetwork, OnlySandboxesReachTheServersSockets) {
  ASSERT_NO_FATAL_FAILURE(begin());
  ASSERT_NO_FATAL_FAILURE(take_sockets());
  const std::string router = host(
      "ip -4 -o addr | grep -o '198.19.[0-9.]*' | head -1 | awk -F. '{printf "
      "\"%s.%s.%s.%s\",$1,$2,$3,$4+1}'");
  EXPECT_EQ(host("ip route add 198.18.0.0/16 via " + router), "");
  for (const std::string& address : {router, std::string("198.18.0.1")}) {
    EXPECT_EQ(tcp_from_host(address, 53), "");
    EXPECT_EQ(tcp_from_host(address, 3128), "");
  }
  EXPECT_FALSE(readable(sockets_.dns_tcp, 50));
  EXPECT_FALSE(readable(sockets_.proxy, 50));
  EXPECT_EQ(host("ip route delete 198.18.0.0/16"), "");
  // Sockets can be asked for again, with the old ones still open.
  auto more = await(runtime_->egress_sockets());
  ASSERT_TRUE(more.ok()) << more.error().message;
  for (int fd : {more->dns_udp, more->dns_tcp, more->proxy}) ::close(fd);
}

TEST_F(JailNetwork, WithoutAPolicyNothingIsReached) {
  ASSERT_NO_FATAL_FAILURE(begin());
  ASSERT_NO_FATAL_FAILURE(take_sockets());
  const SandboxId id = create_with({});
  ASSERT_TRUE(reaches(id, "1.1.1.1", 80));
  EXPECT_EQ(in_router("nft delete element ip atoll sandboxes { " + address_.str() + " }"), "");
  EXPECT_FALSE(reaches(id, "1.1.1.1", 80));
  EXPECT_EQ(udp(id, "8.8.8.8", 7001), "");
  EXPECT_EQ(udp(id, "198.18.0.1", 53), "");
  EXPECT_FALSE(readable(sockets_.dns_udp, 50));
  EXPECT_EQ(in_router("nft add element ip atoll sandboxes { " + address_.str() + " : 0x3 }"), "");
}

// An address comes back to another sandbox, or to the same one after a reboot: connections that
// tracking still knows are not its own.
TEST_F(JailNetwork, ConnectionsEndWithTheirTenant) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create_with({});
  const auto talk = [&] {
    return inside(id,
                  "python3 -c 'import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)"
                  "\ns.settimeout(1)\ns.bind((\"0.0.0.0\",5555))\n"
                  "s.connect((\"8.8.8.8\",7001))\ns.send(b\"talk\")\n"
                  "try: print(len(s.recv(99))>0)\nexcept OSError: print(False)'")
        .output;
  };
  EXPECT_EQ(talk(), "True\n");
  // A closed policy for the running sandbox lets go on what exists; that is the control.
  set(id, policy({}, {"0.0.0.0/0"}));
  EXPECT_EQ(talk(), "True\n");
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  runtime::SandboxSpec again = spec();
  again.id = id;
  again.disk = runtime::Disk::kept;
  again.network = policy({}, {"0.0.0.0/0"});
  auto booted = await(runtime_->create(again));
  ASSERT_TRUE(booted.ok()) << booted.error().message;
  ASSERT_EQ(booted->address, address_) << "the same address, known to connection tracking";
  EXPECT_EQ(talk(), "False\n");
}

TEST_F(JailNetwork, ConnectionsOfASandboxAreLimited) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId greedy = create_with({});
  const SandboxId neighbour = create_with({});
  // One connection per source port, to UDP, which tracking keeps for half a minute.
  EXPECT_EQ(inside(greedy,
                   "python3 -c 'import socket\nfor p in range(10000,16000):\n"
                   " s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                   " s.bind((\"0.0.0.0\",p))\n"
                   " try: s.sendto(b\"x\",(\"8.8.8.8\",7001))\n"
                   " except OSError: pass\n s.close()'")
                .code,
            0);
  const int kept = std::atoi(in_router("cat /proc/sys/net/netfilter/nf_conntrack_count").c_str());
  EXPECT_GT(kept, 3000);
  EXPECT_LE(kept, 4096 + 100);
  EXPECT_EQ(udp(greedy, "1.1.1.1", 7001), "");
  EXPECT_TRUE(reaches(neighbour, "1.1.1.1", 80));
}

TEST_F(JailNetwork, ServersDoNotMeet) {
  ASSERT_NO_FATAL_FAILURE(begin());
  net::asio::io_context other_io;
  runtime::WardenOptions options;
  options.home = home_;
  options.instance = "second";
  options.templates = templates_;
  options.warden_path = ATOLL_WARDEN;
  options.agent_path = ATOLL_PROBE_AGENT;
  auto second = runtime::JailRuntime::start(other_io, options);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(host("ip -o link | grep -c ': atoll'"), "2\n");
  EXPECT_EQ(host("nft list tables ip | grep -c atoll"), "2\n");
  const SandboxId id = create_with({});
  EXPECT_TRUE(reaches(id, "1.1.1.1", 80));
  const pid_t warden = (*second)->warden_pid();
  second->reset();
  other_io.run_for(std::chrono::seconds(3));
  for (int i = 0; i < 300 && host("ip -o link | grep -c ': atoll'") != "1\n"; ++i) ::usleep(10000);
  EXPECT_EQ(host("ip -o link | grep -c ': atoll'"), "1\n") << warden;
  EXPECT_EQ(host("nft list tables ip | grep -c atoll"), "1\n");
  EXPECT_TRUE(reaches(id, "1.1.1.1", 80));
}

TEST_F(JailNetwork, NothingIsLeft) {
  ASSERT_NO_FATAL_FAILURE(begin());
  std::vector<SandboxId> ids;
  for (int i = 0; i < 6; ++i)
    ids.push_back(create_with(policy({"1.1.1.1"}, {"8.8.8.8", "9.0.0.0/8"})));
  EXPECT_EQ(in_router("nft list table ip atoll | grep -c chain.sandbox"), "6\n");
  for (const SandboxId& id : ids) destroy(id);
  EXPECT_EQ(in_router("nft list table ip atoll | grep -c chain.sandbox"), "0\n");
  EXPECT_EQ(in_router("nft list map ip atoll sandboxes | grep -c elements"), "0\n");
  EXPECT_EQ(in_router("nft list map ip atoll lists | grep -c elements"), "0\n");
  EXPECT_EQ(leaks(), "");
  stop();
  EXPECT_EQ(leaks(), "");
  EXPECT_EQ(host("ip -o link | grep -c ': atoll'"), "0\n");
  EXPECT_EQ(host("nft list tables"), "");
}

TEST_F(JailNetwork, RemainsOfAServerWhoseHomeIsGoneAreSwept) {
  const std::string lost = home_ + ".lost";
  EXPECT_EQ(host("mkdir " + lost), "");
  net::asio::io_context other_io;
  runtime::WardenOptions options;
  options.home = lost;
  options.instance = "test";
  options.templates = templates_;
  options.warden_path = ATOLL_WARDEN;
  options.agent_path = ATOLL_PROBE_AGENT;
  auto other = runtime::JailRuntime::start(other_io, options);
  ASSERT_TRUE(other.ok()) << other.error().message;
  ASSERT_EQ(::kill((*other)->warden_pid(), SIGKILL), 0);
  other->reset();
  other_io.run_for(std::chrono::seconds(3));
  EXPECT_EQ(host("ip -o link | grep -c ': atoll'"), "1\n");
  EXPECT_NE(host(std::string(ATOLL_LEAKCHECK) + " --wait 0 " + lost), "nothing left behind\n");
  EXPECT_EQ(host("rm -rf " + lost), "");
  ASSERT_NO_FATAL_FAILURE(begin());
  EXPECT_EQ(host("ip -o link | grep -c ': atoll'"), "1\n") << "ours";
  EXPECT_EQ(host(std::string(ATOLL_LEAKCHECK) + " --wait 0 " + lost), "nothing left behind\n");
}

TEST_F(JailNetwork, WithoutANetwork) {
  ASSERT_NO_FATAL_FAILURE(begin({"--no-network"}));
  const SandboxId id = create_with({});
  EXPECT_EQ(address_, Ipv4{});
  EXPECT_EQ(inside(id, "ip -o link | wc -l").output, "1\n");
  EXPECT_EQ(await(runtime_->set_network(id, {})).error().code, Errc::failed_precondition);
  auto sockets = await(runtime_->egress_sockets());
  ASSERT_TRUE(sockets.ok());
  EXPECT_EQ(sockets->proxy, -1);
  EXPECT_EQ(host("ip -o link | grep -c ': atoll'"), "0\n");
}

TEST_F(JailNetwork, DoctorKnowsWhatTheNetworkNeeds) {
  std::set<std::string> good;
  for (const jail::Check& check : jail::check_host(home_)) {
    if (check.status == jail::Check::Status::ok) good.insert(check.name);
  }
  for (const char* name : {"veth", "nf_tables", "forwarding"})
    EXPECT_TRUE(good.contains(name)) << name;
}

TEST_F(JailNetwork, BadPoliciesAndIdsAreRefused) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create_with({});
  NetworkPolicy bad;
  bad.deny.push_back(Cidr4{Ipv4{0x01010101}, 24});
  EXPECT_EQ(await(runtime_->set_network(id, bad)).error().code, Errc::invalid_argument);
  bad.deny.assign(runtime::kMaxNetworkEntries + 1, Cidr4{Ipv4{0x01010101}, 32});
  EXPECT_EQ(await(runtime_->set_network(id, bad)).error().code, Errc::invalid_argument);
  EXPECT_EQ(await(runtime_->set_network(SandboxId::generate(), {})).error().code, Errc::not_found);
  // As many as there may be, all of them apart.
  NetworkPolicy most;
  for (std::uint32_t i = 0; i < runtime::kMaxNetworkEntries; ++i) {
    most.allow.push_back(Cidr4{Ipv4{0x01010101 + i * 2}, 32});
    most.deny.push_back(Cidr4{Ipv4{0x08080808 + i * 2}, 32});
  }
  set(id, most);
  EXPECT_TRUE(reaches(id, "1.1.1.1", 80));
  EXPECT_FALSE(reaches(id, "8.8.8.8", 80));
  EXPECT_TRUE(reaches(id, "203.0.113.50", 80));
}

}  // namespace
}  // namespace atl::testing
