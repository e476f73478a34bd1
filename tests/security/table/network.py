"""Out of a sandbox by the network: addresses, names, other sandboxes, and what may change the rules.

The internet is that of the lab (tests/e2e/harness): a namespace of its own. Every attack runs as inside/net.py, in a
sandbox and, as its control, on the host of the lab, where the same bytes must get through.
"""

import json
import os
import subprocess
import sys
import time

from client import ApiError
from model import check_row, Fail, Skip

AREA = "Network"

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inside", "net.py")
ALL = ["0.0.0.0/0"]
ALLOWED, ALLOWED_IP = "allowed.example.com", "203.0.113.20"
OTHER, OTHER_IP = "other.example.org", "203.0.113.23"
GOOD, EVIL, SHARED_IP = "good.example.net", "evil.example.net", "203.0.113.30"
PRIVATE = ["169.254.169.254", "10.99.0.7", "192.168.77.7"]
HOST = "192.0.2.1"


def parse(code, out, err):
    try:
        return json.loads(out.decode().strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise Fail(f"net.py said nothing: exit {code}, {(out + err)[-300:]!r}")


def on_host(*arguments):
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, timeout=60)
    return parse(done.returncode, done.stdout, done.stderr)


def inside(sandbox, *arguments, user="user", timeout=60):
    if not getattr(sandbox, "has_net", False):
        with open(SCRIPT, "rb") as file:
            sandbox.upload("/tmp/net.py", file.read())
        sandbox.has_net = True
    return parse(*sandbox.run(["/usr/bin/python3", "/tmp/net.py", *map(str, arguments)], user=user, timeout=timeout))


def must_reach(result, what):
    if not result["reached"]:
        raise Fail(f"{what} should get through and did not: {result['said']}")


def must_not_reach(result, what):
    if result["reached"]:
        raise Fail(f"{what} got through: {result['said']}")


def control(*arguments):
    result = on_host(*arguments)
    if not result["reached"]:
        raise Fail(f"the control did not get through, so this proves nothing: {arguments}: {result['said']}")
    return "got through from the host"


def sandbox_with(world, **network):
    """A sandbox with a network of its own choice, kept for the rows that want the same."""
    key = json.dumps(network, sort_keys=True)
    made = world.with_network.get(key)
    if made is None:
        made = world.with_network[key] = world.new_sandbox(network=network)
    return made


def open_sandbox(world):
    return sandbox_with(world)


def by_name(world):
    return sandbox_with(world, allowOut=[ALLOWED, GOOD], denyOut=ALL)


def private_addresses(world):
    """A sandbox with the whole internet, and one that even asks for them."""
    asking = sandbox_with(world, allowOut=["10.0.0.0/8", "169.254.169.254", "192.168.0.0/16"], denyOut=ALL)
    for address in PRIVATE:
        for sandbox in (open_sandbox(world), asking):
            must_not_reach(inside(sandbox, "tcp", address, 7), f"{address} by TCP")
            must_not_reach(inside(sandbox, "udp", address, 7, user="root"), f"{address} by UDP")
        control("tcp", address, 7)
    must_reach(inside(open_sandbox(world), "tcp", "1.1.1.1", 7), "1.1.1.1 by TCP")
    return "got through from the host"


def rebinding(world):
    """Names that lead to private addresses."""
    for name in ("metadata.example.com", "private.example.com", "home.example.com"):
        must_not_reach(inside(open_sandbox(world), "get", name), name)
        control("get", name)
    must_reach(inside(open_sandbox(world), "get", OTHER), OTHER)
    return "got through from the host"


def host_addresses(world):
    """The machine itself: its address, the API on it, the gateway of the sandbox."""
    sandbox = open_sandbox(world)
    shown = inside(sandbox, "show")["said"].split()
    targets = [HOST] + [address for address in shown[1:] if address != "None"]
    ports = [world.server.port, world.server.tls_port]
    for address in targets:
        result = inside(sandbox, "scan", address, *ports, timeout=120)
        if result["reached"] and result["said"] != "[53]":
            raise Fail(f"{address} takes connections on {result['said']}")
    if not on_host("scan", HOST, *ports)["reached"]:
        raise Fail("the control found no open port on the host, so this proves nothing")
    return "the same scan on the host finds the API's port"


def internet_off(world):
    sandbox = sandbox_with(world, denyOut=ALL)
    for verb in (("tcp", "1.1.1.1", 7), ("udp", "8.8.8.8", 7), ("http", "1.1.1.1", 80, "one.one.one.one"),
                 ("tls", "1.1.1.1", 443, "one.one.one.one"), ("resolve", OTHER), ("dns", "8.8.8.8", OTHER)):
        must_not_reach(inside(sandbox, *verb), " ".join(map(str, verb)))
    control("tcp", "1.1.1.1", 7)
    control("resolve", OTHER)
    return "got through from the host"


def deny_list(world):
    sandbox = sandbox_with(world, denyOut=["8.8.8.8", "203.0.113.0/24"])
    must_not_reach(inside(sandbox, "tcp", "8.8.8.8", 7), "a denied address")
    must_not_reach(inside(sandbox, "udp", "8.8.8.8", 7), "a denied address by UDP")
    must_not_reach(inside(sandbox, "tcp", OTHER_IP, 7), "a denied block")
    must_reach(inside(sandbox, "tcp", "1.1.1.1", 7), "another address")
    return control("tcp", "8.8.8.8", 7)


def allow_list(world):
    sandbox = sandbox_with(world, allowOut=["1.1.1.1"], denyOut=ALL)
    must_reach(inside(sandbox, "tcp", "1.1.1.1", 7), "the allowed address")
    must_not_reach(inside(sandbox, "tcp", "8.8.8.8", 7), "another address")
    must_not_reach(inside(sandbox, "udp", "8.8.8.8", 7), "another address by UDP")
    return control("tcp", "8.8.8.8", 7)


def forged_names(world):
    """Allowed names in front of addresses that DNS never gave for them."""
    sandbox = by_name(world)
    must_reach(inside(sandbox, "get", ALLOWED), "an allowed name by HTTP")
    must_reach(inside(sandbox, "tls", ALLOWED, 443, ALLOWED), "an allowed name by TLS")
    for verb in (("tls", OTHER_IP, 443, ALLOWED), ("http", OTHER_IP, 80, ALLOWED), ("tls", ALLOWED_IP, 443, "-"),
                 ("tls", OTHER_IP, 443, "-"), ("http", OTHER_IP, 80, OTHER_IP), ("tcp", ALLOWED_IP, 7),
                 ("udp", ALLOWED_IP, 7), ("get", OTHER)):
        must_not_reach(inside(sandbox, *verb), " ".join(map(str, verb)))
    control("tls", OTHER_IP, 443, ALLOWED)
    return control("http", OTHER_IP, 80, ALLOWED)


def shared_address(world):
    """Two names on one address: only one of them is allowed."""
    sandbox = by_name(world)
    must_reach(inside(sandbox, "get", GOOD), "the allowed one of the two names")
    for verb in (("http", SHARED_IP, 80, EVIL), ("tls", SHARED_IP, 443, EVIL), ("http_switch", SHARED_IP, 80, GOOD, EVIL),
                 ("http_pair", SHARED_IP, 80, GOOD, EVIL), ("http_pair", SHARED_IP, 80, EVIL, GOOD),
                 ("http_absolute", SHARED_IP, 80, GOOD, EVIL)):
        must_not_reach(inside(sandbox, *verb), " ".join(map(str, verb)))
    return control("http_switch", SHARED_IP, 80, GOOD, EVIL)


def name_tunnel(world):
    """Data in the names of questions, to a name server that the attacker owns."""
    word = os.urandom(8).hex()
    for sandbox in (by_name(world), sandbox_with(world, denyOut=ALL)):
        must_not_reach(inside(sandbox, "resolve", f"{word}.secrets.{OTHER}"), "a question below another name")
        must_not_reach(inside(sandbox, "dns", "8.8.8.8", f"{word}.{OTHER}"), "a name server of one's own")
    time.sleep(0.2)
    if word in world.lab_log("dnsmasq") + world.lab_log("world"):
        raise Fail("the question reached a name server outside")
    return control("resolve", OTHER)


def neighbours(world):
    """Another sandbox by its address."""
    one, two = open_sandbox(world), world.neighbour
    address = inside(two, "show")["said"].split()[0]
    server = two.start(["/usr/bin/python3", "-m", "http.server", "8123", "--bind", "0.0.0.0"], timeout=60)
    try:
        deadline = time.monotonic() + 10
        while not inside(two, "http", address, 8123, "x")["reached"]:
            if time.monotonic() > deadline:
                raise Fail("the neighbour's server does not answer the neighbour itself")
            time.sleep(0.2)
        for user in ("user", "root"):
            must_not_reach(inside(one, "http", address, 8123, "x", user=user), "a neighbour's server")
        must_not_reach(inside(one, "ipv6", user="root"), "IPv6 to the link")
    finally:
        server.close()
    return "answers the neighbour itself"


def spoofing(world):
    """A neighbour's address as the source of a packet."""
    one, two = open_sandbox(world), world.neighbour
    stranger, own = inside(two, "show")["said"].split()[0], inside(one, "show")["said"].split()[0]
    sent = inside(one, "spoof", stranger, "203.0.113.22", 9999, user="root")
    inside(one, "spoof", own, "203.0.113.22", 9998, user="root")
    time.sleep(0.3)
    seen = world.lab_seen()
    if f"spoofed-{stranger}" in seen:
        raise Fail(f"a packet with a neighbour's address got out ({sent['said']})")
    on_host("spoof", "192.0.2.77", "203.0.113.22", 9999)
    time.sleep(0.3)
    if "spoofed-192.0.2.77" not in world.lab_seen():
        raise Fail("the control's packet was not seen, so this proves nothing")
    return "a forged packet of the host is seen"


def own_rules(world):
    """Root inside changes its routes, addresses and firewall."""
    result = inside(world.main, "new_route", user="root")
    must_not_reach(result, "a new route")
    for command in ("ip route replace default dev lo", "ip link set lo down", "ip addr add 10.99.0.1/8 dev lo", "nft flush ruleset",
                    "iptables -F", "sysctl -w net.ipv4.ip_forward=1"):
        code, out, err = world.main.run(["/bin/sh", "-c", command], user="root")
        if code == 0:
            raise Fail(f"root inside may: {command}: {(out + err)!r}")
    done = subprocess.run(["unshare", "--net", sys.executable, SCRIPT, "new_route"], capture_output=True, timeout=30)
    if not parse(done.returncode, done.stdout, done.stderr)["reached"]:
        # In a namespace whose lo is down the kernel refuses for another reason: try with lo up.
        done = subprocess.run(["unshare", "--net", "sh", "-c", f"ip link set lo up && {sys.executable} {SCRIPT} new_route"],
                              capture_output=True, timeout=30)
        if not parse(done.returncode, done.stdout, done.stderr)["reached"]:
            raise Fail(f"the control could not add a route either: {done.stdout[-200:]!r}")
    return "root in a network namespace of its own may"


def policy_after_pause(world):
    """The same attacks after a pause and after a reboot from disk."""
    sandbox = world.new_sandbox(network={"allowOut": ["1.1.1.1"], "denyOut": ALL})
    for body in ({"memory": True}, {"memory": False}):
        world.api.call("POST", f"/sandboxes/{sandbox.id}/pause", body)
        world.api.call("POST", f"/sandboxes/{sandbox.id}/connect", {"timeout": 600})
        must_reach(inside(sandbox, "tcp", "1.1.1.1", 7), "the allowed address after a resume")
        must_not_reach(inside(sandbox, "tcp", "8.8.8.8", 7), f"another address after a pause with {body}")
        must_not_reach(inside(sandbox, "tcp", "169.254.169.254", 7), "metadata after a pause")
    world.drop_sandbox(sandbox)
    return control("tcp", "8.8.8.8", 7)


def policy_after_restart(world):
    """And after the server and the warden were killed."""
    sandbox = world.new_sandbox(network={"allowOut": ["1.1.1.1", ALLOWED], "denyOut": ALL})
    inside(sandbox, "show")
    for victim in ("server", "warden"):
        # While nobody is there: a program inside goes on trying.
        trying = sandbox.run(["/bin/sh", "-c",
                              "(for i in $(seq 12); do python3 /tmp/net.py tcp 8.8.8.8 7; sleep 0.2; done > /tmp/tries 2>&1) > /dev/null 2>&1 &"])
        if trying[0] != 0:
            raise Fail("cannot start the attack inside")
        world.kill_and_wait(victim)
        must_reach(inside(sandbox, "tcp", "1.1.1.1", 7), f"the allowed address after the death of the {victim}")
        must_reach(inside(sandbox, "get", ALLOWED), f"the allowed name after the death of the {victim}")
        must_not_reach(inside(sandbox, "tcp", "8.8.8.8", 7), f"another address after the death of the {victim}")
        tries = sandbox.download("/tmp/tries")[1].decode()
        if '"reached": true' in tries or '"reached": false' not in tries:
            raise Fail(f"while the {victim} was dead: {tries[-300:]}")
    world.drop_sandbox(sandbox)
    return control("tcp", "8.8.8.8", 7)


def policy_updates(world):
    """A policy that becomes stricter acts on the next connection."""
    sandbox = world.new_sandbox(network={})
    must_reach(inside(sandbox, "tcp", "8.8.8.8", 7), "8.8.8.8 before the update")
    world.api.call("PUT", f"/sandboxes/{sandbox.id}/network", {"denyOut": ["8.8.8.8"]})
    must_not_reach(inside(sandbox, "tcp", "8.8.8.8", 7), "8.8.8.8 after the update")
    try:
        world.api.call("PUT", f"/sandboxes/{sandbox.id}/network", {"denyOut": ["not an address"]})
        raise Fail("a policy that makes no sense was accepted")
    except ApiError as error:
        if error.status != 400:
            raise Fail(f"a policy that makes no sense: {error}")
    must_not_reach(inside(sandbox, "tcp", "8.8.8.8", 7), "8.8.8.8 after a refused update")
    world.drop_sandbox(sandbox)
    return "reached before the update"


def outside_listeners(world):
    """The resolver and the egress proxy are for sandboxes only."""
    listening = subprocess.run(["ss", "-Hltnu"], capture_output=True, text=True, check=True).stdout
    ports = sorted({line.split()[4].rsplit(":", 1)[1] for line in listening.splitlines() if line.split()})
    expected = {str(port) for port in world.known_ports()}
    strange = [port for port in ports if port not in expected]
    if strange:
        raise Fail(f"unexpected listeners in the host's network: {strange}\n{listening}")
    return "the known ports are seen"


ROWS = [
    check_row("private_addresses", "cloud metadata, private and link-local addresses", "refused by the router whatever the policy says",
              private_addresses),
    check_row("dns_rebinding", "names that lead to private addresses", "the resolver drops such answers, the router such packets", rebinding),
    check_row("host_ports", "scan the host and the gateway", "input from sandboxes is dropped; only DNS on the gateway", host_addresses),
    check_row("internet_off", "get out with the internet off: TCP, UDP, DNS", "default drop; the resolver refuses", internet_off),
    check_row("deny_list", "reach denied addresses", "nftables, in force before the first instruction", deny_list),
    check_row("allow_list", "reach what is not on an allow-list", "nftables", allow_list),
    check_row("forged_names", "raw addresses behind allowed names: SNI, Host, no name, other ports",
              "egress proxy: the name must be allowed and DNS must have given that address for it", forged_names),
    check_row("shared_address", "another name on an allowed name's address: keep-alive, two Hosts, absolute targets",
              "egress proxy looks at every request", shared_address),
    check_row("dns_tunnel", "carry data out in DNS questions", "only allowed names are resolved; no other name server is reachable", name_tunnel),
    check_row("neighbour_by_ip", "another sandbox by its address, by ARP and IPv6", "no forwarding between sandboxes; no IPv6 on the link",
              neighbours),
    check_row("spoofed_source", "packets with a neighbour's address", "reverse-path filter per link", spoofing),
    check_row("own_network_rules", "root inside changes routes, addresses, firewall", "no CAP_NET_ADMIN; the rules are outside", own_rules),
    check_row("policy_after_pause", "use a pause to lose the policy", "rules are kept while it sleeps and set before it wakes", policy_after_pause),
    check_row("policy_after_restart", "use a crash of the server or the warden", "rules are in the kernel, not in a process", policy_after_restart),
    check_row("policy_update", "keep going after the policy became stricter", "live replacement in one transaction", policy_updates),
    check_row("egress_listeners", "use the resolver or the egress proxy from outside", "they listen in the router's namespace only",
              outside_listeners),
]
