"""From a sandbox to the host's and to another sandbox's sockets and shared memory."""

import contextlib
import fcntl
import os
import secrets
import socket
import struct

from model import Fail, held, judge_control, Row, Skip
from world import free_port, HostSocket, INSIDE

AREA = "IPC and loopback of the host and of neighbours"


@contextlib.contextmanager
def abstract_on_host(world):
    name = "atoll-canary-" + secrets.token_hex(6)
    listener = HostSocket("\0" + name, world.secret)
    try:
        yield ["connect", name, world.secret]
    finally:
        listener.stop()


@contextlib.contextmanager
def segment_on_host(world):
    key = hex(secrets.randbits(30) | 0x40000000)
    maker = world.host_process("sysv_shared_memory", ["make", key, world.secret, 60], "MADE")
    try:
        yield ["read", key, world.secret]
    finally:
        maker.stdin.close()
        maker.wait(10)


@contextlib.contextmanager
def queue_on_host(world):
    """A file in the host's /dev/shm; world-readable, like the canary."""
    path = f"/dev/shm/atoll-canary-{secrets.token_hex(6)}"
    with open(path, "w") as file:
        file.write(world.secret)
    os.chmod(path, 0o644)
    try:
        yield ["/atoll-canary", path, world.secret]
    finally:
        os.unlink(path)


@contextlib.contextmanager
def port_on_host(world):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(8)
    try:
        yield ["connect", "127.0.0.1", listener.getsockname()[1]]
    finally:
        listener.close()


@contextlib.contextmanager
def in_neighbour(world, payload, args, ready, then):
    """A partner payload that runs in the other sandbox while the attack is tried."""
    world.give_payloads(world.neighbour)
    partner = world.neighbour.start([f"{INSIDE}/{payload}", *map(str, args)], user="root", timeout=60, stdin=True)
    try:
        if not partner.until(ready):
            raise Fail(f"{payload} in the neighbour: {partner.stdout!r}")
        # The partner is really there: its own sandbox reaches it.
        verdict = world.inside(payload, then, "root", world.neighbour)
        if verdict.word != "SUCCEEDED":
            raise Fail(f"the neighbour cannot reach its own: {verdict}")
        yield then
    finally:
        with contextlib.suppress(Exception):
            world.neighbour.run(["/bin/kill", str(partner.pid)], user="root")
        partner.close()


def neighbour_abstract(world):
    name = "atoll-neighbour-" + secrets.token_hex(6)
    return in_neighbour(world, "abstract_socket", ["listen", name, world.secret, 50], b"LISTENING",
                        ["connect", name, world.secret])


def neighbour_segment(world):
    key = hex(secrets.randbits(30) | 0x40000000)
    return in_neighbour(world, "sysv_shared_memory", ["make", key, world.secret, 50], b"MADE", ["read", key, world.secret])


def neighbour_port(world):
    port = free_port()
    return in_neighbour(world, "tcp_loopback", ["listen", "127.0.0.1", port, 50], b"LISTENING", ["connect", "127.0.0.1", port])


def partner_row(name, attack, protection, payload, partner, control_partner=None):
    """Inside, the attack on `partner` must be blocked; on the host, where nothing separates them, it must work."""
    def control(world):
        with (control_partner or partner)(world) as args:
            return judge_control(world.on_host(payload, args))

    def attempt(world):
        with partner(world) as args:
            return [(user, world.inside(payload, args, user)) for user in ("user", "root")]

    def run(world):
        said = []
        for user, verdict in attempt(world):
            if verdict.word != "BLOCKED":
                raise Fail(f"as {user}: {verdict}")
            said.append(f"{user}: {verdict.text}")
        return held(control(world), "; ".join(said))

    return Row(name, attack, protection, run, lambda world: held(control(world)), attempt)


def host_addresses():
    """IPv4 addresses of the host's interfaces, loopback excepted."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
                found.append(socket.inet_ntoa(answer[20:24]))
    return [address for address in found if not address.startswith("127.")]


@contextlib.contextmanager
def api_port_on_interface(world):
    """A port of the host on an address other than loopback."""
    addresses = host_addresses()
    if not addresses:
        raise Skip("no control on this machine: it has no address besides loopback")
    listener = socket.socket()
    listener.bind((addresses[0], 0))
    listener.listen(8)
    try:
        yield ["connect", addresses[0], listener.getsockname()[1]]
    finally:
        listener.close()


NETNS = "own network namespace"
ROWS = [
    partner_row("host_abstract_socket", "an abstract Unix socket of the host", NETNS, "abstract_socket", abstract_on_host),
    partner_row("host_shared_memory", "System V shared memory of the host", "own IPC namespace", "sysv_shared_memory", segment_on_host),
    partner_row("host_dev_shm", "a file in the host's /dev/shm, its message queues", "own /dev/shm and IPC namespace",
                "posix_shared_memory", queue_on_host),
    partner_row("host_loopback", "a port on the host's 127.0.0.1", NETNS, "tcp_loopback", port_on_host),
    partner_row("host_address", "a port on the host's own address", NETNS + " without a route", "tcp_loopback",
                api_port_on_interface),
    partner_row("neighbour_abstract_socket", "an abstract Unix socket of another sandbox", NETNS, "abstract_socket",
                neighbour_abstract, abstract_on_host),
    partner_row("neighbour_shared_memory", "System V shared memory of another sandbox", "own IPC namespace",
                "sysv_shared_memory", neighbour_segment, segment_on_host),
    partner_row("neighbour_loopback", "a port on another sandbox's 127.0.0.1", NETNS, "tcp_loopback", neighbour_port, port_on_host),
]
