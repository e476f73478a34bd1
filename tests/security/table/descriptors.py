"""Leaked descriptors, the agent's binary and its socket."""

import os
import socket
import subprocess
import threading

from model import check_row, Fail, held, judge_control, payload_row, Row
from world import read_text, stop_process

AREA = "Descriptors, the agent's binary and socket"


def canary(world):
    return [world.canary, world.secret]


def leaks_seen_from_host(world):
    """Every descriptor of every process of the sandbox is on one of its own mounts, by the host's eyes."""
    count = 0
    for pid in world.pids_of(world.main):
        try:
            own = {line.split()[0] for line in read_text(f"/proc/{pid}/mountinfo").splitlines()}
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for number in descriptors:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{number}")
                info = read_text(f"/proc/{pid}/fdinfo/{number}")
            except OSError:
                continue
            count += 1
            if not target.startswith("/") or target.startswith("/memfd:"):
                continue
            mount = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)["mnt_id"].strip()
            if mount not in own:
                raise Fail(f"descriptor {number} of process {pid} is {target}, on a mount of the host")
    if count < 4:
        raise Fail(f"only {count} descriptors seen")
    # Control: the same look at a process of the host finds descriptors that are not on the sandbox's mounts.
    info = dict(line.split(":", 1) for line in read_text(f"/proc/{world.victim.pid}/fdinfo/{world.victim.fd}").splitlines()
                if ":" in line)
    if info["mnt_id"].strip() in {line.split()[0] for line in read_text(f"/proc/{world.init_of(world.main)}/mountinfo").splitlines()}:
        raise Fail("the control's descriptor counts as the sandbox's")
    return "a host process's descriptor is recognised"


def overwrite_control(world):
    """A binary on the host whose process ends while the payload waits."""
    copy = os.path.join(world.work, "victim-binary")
    subprocess.run(["cp", world.payload("canary"), copy], check=True)
    victim = subprocess.Popen([copy, "x", world.canary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    victim.stdout.readline()
    threading.Timer(0.4, stop_process, [victim]).start()
    return judge_control(world.on_host("overwrite_exe", [victim.pid]))


def overwrite(world):
    said = []
    for user in ("user", "root"):
        verdict = world.inside("overwrite_exe", ["1"], user)
        if verdict.word != "BLOCKED":
            raise Fail(f"as {user}: {verdict}")
        said.append(f"{user}: {verdict.text}")
    return held(overwrite_control(world), "; ".join(said))


AGENT_WRITES = "for f in /run/atoll/*; do for d in \"echo x >> $f\" \"rm -f $f\" \"mv $f $f.x\" \"ln -sf /etc/passwd $f\" " \
               "\"chmod 777 $f\" \"touch /run/atoll/new\"; do if sh -c \"$d\" 2>/dev/null; then echo \"DID $d\"; fi; done; done"


def agent_directory(world):
    """Nothing in /run/atoll can be written, removed, renamed or added; outside, the same commands do."""
    for user in ("user", "root"):
        _, out, _ = world.main.run(["/bin/sh", "-c", AGENT_WRITES], user=user)
        if b"DID" in out:
            raise Fail(f"as {user}: {out.decode().strip()}")
    if world.main.health() not in (200, 204):
        raise Fail("the agent does not answer any more")
    directory = os.path.join(world.work, "run-atoll")
    os.makedirs(directory)
    for name in ("agent.sock", "boot_id"):
        open(os.path.join(directory, name), "w").close()
    # Outside the link must lead to a file of the test's own: chmod follows it.
    victim = os.path.join(world.work, "run-atoll-victim")
    open(victim, "w").close()
    commands = AGENT_WRITES.replace("/run/atoll", directory).replace("/etc/passwd", victim)
    done = subprocess.run(["/bin/sh", "-c", commands], capture_output=True)
    if b"DID" not in done.stdout:
        raise Fail("the control could not change a plain directory")
    return "succeeded"


def symlink_control(world):
    """A client that follows paths ends at the host's socket."""
    directory = os.path.join(world.work, "control-socket")
    os.makedirs(directory, exist_ok=True)
    name = os.path.join(directory, "agent.sock")
    if os.path.lexists(name):
        os.unlink(name)
    own = socket.socket(socket.AF_UNIX)
    own.bind(name)
    outcome = judge_control(world.on_host("replace_agent_socket", [directory, world.host_socket_path]))
    own.close()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(name)
        if client.recv(64) != world.secret.encode():
            raise Fail("the control did not arrive at the host's socket")
    return outcome


def socket_symlink(world):
    said = []
    before = world.host_socket.connections
    for user in ("user", "root"):
        sandbox = world.new_sandbox()
        try:
            world.give_payloads(sandbox, "replace_agent_socket")
            verdict = world.inside("replace_agent_socket", ["/run/atoll", world.host_socket_path], user, sandbox)
            if verdict.word not in ("BLOCKED", "SUCCEEDED"):
                raise Fail(f"as {user}: {verdict}")
            # Even where the replacement works, the server must not follow it.
            for _ in range(3):
                try:
                    sandbox.health(5)
                except OSError:
                    pass
            if world.host_socket.connections != before:
                raise Fail(f"as {user}: the server connected to a socket of the host")
            if verdict.word != "BLOCKED":
                raise Fail(f"as {user}: {verdict}")
            said.append(f"{user}: {verdict.text}")
        finally:
            world.drop_sandbox(sandbox)
    return held(symlink_control(world), "; ".join(said))


def connect_to_agent_socket(world):
    """Only the server may connect to the agent's own socket: the agent trusts that side more than its port."""
    script = ("import socket,sys\ns=socket.socket(socket.AF_UNIX)\n"
              "try:\n s.connect(sys.argv[1]); print('CONNECTED')\nexcept OSError as e:\n print('REFUSED', e.errno)")
    for user in ("user", "root"):
        code, out, err = world.main.run(["/usr/bin/python3", "-c", script, "/run/atoll/agent.sock"], user=user)
        if b"REFUSED" not in out:
            raise Fail(f"as {user}: {(out + err).decode().strip()[-200:]}")
    done = subprocess.run(["/usr/bin/python3", "-c", script, world.host_socket_path], capture_output=True)
    if b"CONNECTED" not in done.stdout:
        raise Fail("the control could not connect to an open socket")
    return "succeeded"


ROWS = [
    payload_row("leaked_descriptor", "a descriptor that leads outside, in any process (CVE-2024-21626)",
                "every descriptor closed but the agent's socket and /dev/null", "leaked_descriptor", canary,
                control=dict(bare=True, leak="/")),
    check_row("leaked_descriptor_host_view", "the same, seen from the host, PID 1 included",
              "every descriptor closed but the agent's socket and /dev/null", leaks_seen_from_host),
    Row("overwrite_agent", "overwrite the agent's binary through /proc/1/exe (CVE-2019-5736)",
        "read-only mount of a copy that the host's root owns", overwrite, lambda world: held(overwrite_control(world))),
    check_row("agent_directory", "write, remove, replace or add files in /run/atoll",
              "the directory belongs to an id that does not exist inside", agent_directory),
    Row("agent_socket_symlink", "put a link to a host socket in the place of agent.sock",
        "directory not writable inside; the server connects through a descriptor of it", socket_symlink,
        lambda world: held(symlink_control(world))),
    check_row("agent_socket_connect", "connect to the agent's control socket from inside",
              "socket of the host's root and the server's group, mode 0660", connect_to_agent_socket),
]
