"""Who runs as whom: ids, capabilities, seccomp, namespaces. Mostly seen from the host."""

import contextlib
import os
import time
import socket
import stat

import policy
from model import check_row, Fail, payload_row
from world import all_pids, read_text, status_of

AREA = "Ids, capabilities, privileges"
NAMESPACES = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]


def ids(status, name):
    return [int(x) for x in status[name].split()]


def capability_sets(status):
    return {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}


def server_has_no_privileges(world):
    status = status_of(world.server.pid)
    if 0 in ids(status, "Uid") + ids(status, "Gid") or "0" in status["Groups"].split():
        raise Fail(f"the server runs with uid {status['Uid']}, gid {status['Gid']}, groups {status['Groups']}")
    for name, value in capability_sets(status).items():
        if value and name != "CapBnd":
            raise Fail(f"the server has {name} {policy.names(value)}")
    if status["NoNewPrivs"] != "1":
        raise Fail("the server could gain privileges by an exec")
    own = status_of(os.getpid())
    if not capability_sets(own)["CapEff"]:
        raise Fail("the control, this root process, shows no capability")
    return "a root process is recognised"


def sockets_of(pid):
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{number}")
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def internet_sockets(inodes, pid):
    """[(protocol, state)] of those among the inodes that are TCP, UDP or raw."""
    found = []
    for protocol in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "udplite", "packet"):
        with contextlib.suppress(OSError):
            for line in read_text(f"/proc/{pid}/net/{protocol}").splitlines()[1:]:
                if inodes & set(line.split()):
                    found.append((protocol, line.split()[3]))
    return found


def warden_has_no_network(world):
    pid = world.warden_pid()
    if status_of(pid)["Threads"] != "1":
        raise Fail(f"the warden has {status_of(pid)['Threads']} threads")
    found = internet_sockets(sockets_of(pid), pid)
    if found:
        raise Fail(f"the warden has network sockets: {found}")
    listening = set()
    for line in read_text(f"/proc/{pid}/net/unix").splitlines()[1:]:
        words = line.split()
        if int(words[3], 16) & 0x10000 and words[6] in sockets_of(pid):
            listening.add(words[7] if len(words) > 7 else "unnamed")
    if listening:
        raise Fail(f"the warden listens on {listening}")
    control = internet_sockets(sockets_of(world.server.pid), world.server.pid)
    if ("tcp", "0A") not in control:
        raise Fail("the control, the server, shows no listening socket")
    return "the server's listening socket is recognised"


def sandbox_uids(world):
    """All ids of all processes are in the sandbox's own range of 65,536, and the two ranges are apart."""
    # Something besides the agent must run, as both users.
    sleepers = [world.main.start(["/bin/sleep", "20"], user=user) for user in ("user", "root")]
    for process in sleepers:
        next(iter_start(process), None)
    ranges = []
    try:
        for sandbox in (world.main, world.neighbour):
            first = int(read_text(f"/proc/{world.init_of(sandbox)}/uid_map").split()[1])
            count = int(read_text(f"/proc/{world.init_of(sandbox)}/uid_map").split()[2])
            if count > policy.IDS_PER_SANDBOX or first < 65536:
                raise Fail(f"sandbox {sandbox.id} maps {count} ids from {first}")
            seen = 0
            for pid in world.pids_of(sandbox):
                with contextlib.suppress(OSError):
                    status = status_of(pid)
                    seen += 1
                    for number in ids(status, "Uid") + ids(status, "Gid") + [int(x) for x in status["Groups"].split()]:
                        if not first <= number < first + count:
                            raise Fail(f"process {pid} of sandbox {sandbox.id} has the id {number}")
            if seen < 1:
                raise Fail("no process seen")
            ranges.append(range(first, first + count))
        if set(ranges[0]) & set(ranges[1]):
            raise Fail("the two sandboxes share ids")
    finally:
        for process in sleepers:
            process.close()
    if 0 not in ids(status_of(os.getpid()), "Uid"):
        raise Fail("the control, this root process, has no uid 0")
    return "a root process is recognised"


def iter_start(process):
    """The first event says that the process runs; its output does not matter."""
    head = process._exactly(5)
    size = int.from_bytes(head[1:], "big")
    yield process._exactly(size)


def sandbox_confinement(world):
    own = status_of(os.getpid())
    for sandbox in (world.main, world.neighbour):
        for pid in world.pids_of(sandbox):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = status_of(pid)
                if status["Seccomp"] != "2":
                    raise Fail(f"process {pid} has Seccomp: {status['Seccomp']}")
                for name, value in capability_sets(status).items():
                    if value & ~policy.CAPABILITY_MASK:
                        raise Fail(f"process {pid} has {name} {policy.names(value & ~policy.CAPABILITY_MASK)}")
                for kind in NAMESPACES:
                    if os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}"):
                        raise Fail(f"process {pid} is in the host's {kind} namespace")
    for kind in NAMESPACES:
        if os.readlink(f"/proc/{world.init_of(world.main)}/ns/{kind}") == os.readlink(f"/proc/{world.init_of(world.neighbour)}/ns/{kind}"):
            raise Fail(f"the sandboxes share a {kind} namespace")
    if own["Seccomp"] == "2" or not capability_sets(own)["CapBnd"] & ~policy.CAPABILITY_MASK:
        raise Fail("the control, this process, looks confined")
    return "a process of the host is recognised"


def files_on_disk(world):
    """What the sandbox's root makes belongs on the host to an id of the range, set-uid or not."""
    world.main.run(["/bin/sh", "-c", "cp /bin/true /root/suid && chmod 4755 /root/suid"], user="root")
    init = world.init_of(world.main)
    first = int(read_text(f"/proc/{init}/uid_map").split()[1])
    info = os.stat(f"/proc/{init}/root/root/suid")
    if not first <= info.st_uid < first + policy.IDS_PER_SANDBOX:
        raise Fail(f"a file of the sandbox's root belongs to {info.st_uid} on the host")
    if not info.st_mode & stat.S_ISUID:
        raise Fail("the file lost its set-uid bit, the check shows nothing")
    sandboxes = os.path.join(world.home, "sandboxes")
    if os.stat(sandboxes).st_mode & 0o077 or os.stat(sandboxes).st_uid != 0:
        raise Fail(f"{sandboxes} is open to others than root")
    return "the set-uid file exists"


def secrets_on_disk(world):
    """Keys are the server user's alone; the server cannot write what the warden reads."""
    server = status_of(world.server.pid)
    uid = ids(server, "Uid")[0]
    keys = os.path.join(world.home, "keys")
    seen = 0
    for top, directories, files in os.walk(keys):
        for name in files:
            if name.endswith(".pem"):  # certificates are public; their keys end in .key
                continue
            info = os.stat(os.path.join(top, name))
            seen += 1
            if info.st_mode & 0o077 or info.st_uid not in (0, uid):
                raise Fail(f"{os.path.join(top, name)} has mode {info.st_mode & 0o777:o}")
    if not seen:
        raise Fail(f"no key file below {keys}")
    for path in (world.home, os.path.join(world.home, "templates"), os.path.join(world.home, "sandboxes")):
        if os.path.exists(path) and (os.stat(path).st_uid == uid or os.stat(path).st_mode & 0o022):
            raise Fail(f"the server may write {path}")
    return "key files exist"


def listening_ports(world):
    """Of all that belongs to this server, only the API listens in the host's network, on the addresses it was given."""
    pids = [world.server.pid, world.warden_pid(), *world.pids_of(world.main), *world.pids_of(world.neighbour)]
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            inodes |= sockets_of(pid)
    found = set()
    for protocol in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        for line in read_text(f"/proc/self/net/{protocol}").splitlines()[1:]:
            words = line.split()
            if words[9] in inodes and (words[3] == "0A" or not protocol.startswith("tcp")):
                found.add((protocol, words[1]))
    tls = int.from_bytes(socket.inet_aton(world.tls_host), "little")
    expected = {("tcp", f"0100007F:{world.api.port:04X}"), ("tcp", f"{tls:08X}:{world.server.tls_port:04X}")}
    if found != expected:
        raise Fail(f"listening: {sorted(found)}, expected {sorted(expected)}")
    # Control: a port that a process inside opens is not among the host's.
    server = world.main.start(["/usr/bin/python3", "-m", "http.server", "8123", "--bind", "0.0.0.0"], timeout=30)
    try:
        for _ in range(100):
            code, _, _ = world.main.run(["/usr/bin/nc", "-z", "127.0.0.1", "8123"])
            if code == 0:
                break
            time.sleep(0.1)
        else:
            raise Fail("the control, a port inside, did not open")
        listening = {line.split()[1] for line in read_text("/proc/self/net/tcp").splitlines()[1:] if line.split()[3] == "0A"}
        if any(address.endswith(":1FBB") for address in listening):
            raise Fail("a port of the sandbox is open on the host")
    finally:
        server.close()
    return "a port inside opens, and stays inside"


CAPS = [f"{policy.CAPABILITY_MASK:x}"]
ROWS = [
    check_row("server_privileges", "the server runs with rights", "gives up root, capabilities and their return after starting the warden",
              server_has_no_privileges),
    check_row("warden_network", "reach the warden over the network", "one socket pair to the server, no listener, one thread",
              warden_has_no_network),
    check_row("listening_ports", "find an open port beside the API", "own network namespaces; one listener", listening_ports),
    check_row("sandbox_ids", "a sandbox process with an id of the host", "user namespace with an own range of ids", sandbox_uids),
    check_row("sandbox_confinement", "a sandbox process without seccomp, with more capabilities or in a host namespace",
              "set up before the agent's exec, inherited by all", sandbox_confinement),
    check_row("setuid_file_on_host", "a set-uid file of a sandbox used on the host", "shifted ids; disks below a directory of root only",
              files_on_disk),
    check_row("keys_on_disk", "read keys or swap directories under the warden", "modes 0600; directories of root", secrets_on_disk),
    payload_row("raise_capabilities", "raise capabilities with capset and ambient sets", "bounding set", "raise_capabilities", CAPS),
    payload_row("setuid_regain", "gain capabilities by a set-uid root binary", "bounding set", "setuid_regain", CAPS, users=("root",)),
    payload_row("filecap_regain", "gain capabilities by a binary with file capabilities", "bounding set", "filecap_regain", CAPS,
                users=("root",)),
]
