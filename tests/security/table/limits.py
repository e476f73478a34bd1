"""Bombs: held by limits, while a neighbour still answers."""

import contextlib
import os
import subprocess
import sys
import threading
import time

from client import ApiError, RpcError
from model import Fail, held, judge_control, Row, Skip
from world import HERE, INSIDE, read_text, status_of, stop_process

AREA = "Bombs"
PATIENCE = 5.0  # seconds: the longest answer that a neighbour may need on a machine that is under attack


def limits_of(world):
    if not hasattr(world, "limits"):
        if not world.api:  # only controls: the limits of the base template
            return {"memory": 512, "disk": 5120, "pids": 1024}
        info = world.api.info(world.main.id)
        world.limits = {"memory": int(info["memoryMB"]), "disk": int(info.get("diskSizeMB") or info.get("diskSizeMb") or 5120),
                        "pids": pids_limit(world)}
    return world.limits


def pids_limit(world):
    """pids.max of the sandbox, as the kernel has it."""
    for line in read_text(f"/proc/{world.init_of(world.main)}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for top in (f"/sys/fs/cgroup/{controllers}", "/sys/fs/cgroup"):
            with contextlib.suppress(OSError, ValueError):
                while path not in ("", "/"):
                    name = f"{top}{path}/pids.max"
                    if os.path.exists(name) and read_text(name).strip() != "max":
                        return int(read_text(name))
                    path = os.path.dirname(path)
    raise Fail("the sandbox has no limit on processes")


class Watch(threading.Thread):
    """Runs `true` in the neighbour again and again; remembers the longest wait and every failure."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.stop, self.waits, self.failures = world, threading.Event(), [], []
        self.start()

    def run(self):
        while not self.stop.is_set():
            begun = time.monotonic()
            try:
                code, _, err = self.world.neighbour.run(["/bin/true"], timeout=20)
                if code != 0:
                    self.failures.append(f"exit {code} {err[:100]!r}")
            except (ApiError, RpcError, OSError) as error:
                self.failures.append(str(error))
            self.waits.append(time.monotonic() - begun)
            self.stop.wait(0.05)

    def verdict(self):
        self.stop.set()
        self.join(30)
        if self.failures:
            raise Fail(f"the neighbour failed: {self.failures[0]}")
        if not self.waits or max(self.waits) > PATIENCE:
            raise Fail(f"the neighbour waited {max(self.waits, default=0):.1f} s")
        return f"neighbour answered {len(self.waits)} times, slowest {max(self.waits) * 1000:.0f} ms"


def bomb(name, attack, protection, payload, args, control_args=None, need_mib=0, recovers=True, timeout=120, users=("user", "root"),
         make=lambda world: world.new_sandbox()):
    """A payload in a sandbox of its own, its neighbour watched; the control passes the same cap outside."""
    def control(world):
        if need_mib:
            available = int(next(l for l in read_text("/proc/meminfo").splitlines() if l.startswith("MemAvailable")).split()[1]) >> 10
            if available < 2 * need_mib:
                raise Skip("no control on this machine: too little memory")
        chosen = control_args or args
        return judge_control(world.on_host(payload, chosen(world), timeout=timeout))

    def run(world):
        said = []
        for user in users:
            sandbox = make(world)
            try:
                world.give_payloads(sandbox, payload)
                watch = Watch(world)
                try:
                    verdict = world.inside(payload, args(world), user, sandbox, timeout)
                finally:
                    neighbour = watch.verdict()
                if verdict.word not in ("BLOCKED", "KILLED"):
                    raise Fail(f"as {user}: {verdict}")
                said.append(f"{user}: {verdict.text}; {neighbour}")
                if recovers:
                    recover(sandbox)
            finally:
                world.drop_sandbox(sandbox)
        return held(control(world), "; ".join(said))

    return Row(name, attack, protection, run, lambda world: held(control(world)))


def recover(sandbox):
    """The bombed sandbox itself is usable again soon after."""
    error = None
    for _ in range(50):
        try:
            if sandbox.run(["/bin/true"], timeout=20)[0] == 0:
                return
        except (ApiError, RpcError, OSError) as failure:
            error = failure
        time.sleep(0.2)
    raise Fail(f"the sandbox did not recover: {error}")


def starve(name, attack, protection, payload, cap, hold=6, control_uid=None):
    """A supply that the kernel keeps for all: one takes what it can, the neighbour must still get some."""
    def probe_host(world):
        return world.on_host(payload, ["probe"], **({"uid": control_uid} if control_uid else {}))

    def control(world):
        """Two processes on the host that nothing separates."""
        command = [sys.executable, os.path.join(HERE, "barehost.py"), "--work", world.work]
        if control_uid:
            command += ["--uid", str(control_uid)]
        holder = subprocess.Popen(command + [world.payload(payload), "hold", str(cap(world)), "2"], stdout=subprocess.PIPE)
        try:
            line = holder.stdout.readline()
            if not line.startswith(b"HOLDING"):
                raise Skip(f"no control on this machine: {line!r}")
            return judge_control(probe_host(world))
        finally:
            stop_process(holder)

    def run(world):
        sandbox = world.new_sandbox()
        try:
            world.give_payloads(sandbox, payload)
            world.give_payloads(world.neighbour)
            holder = sandbox.start([f"{INSIDE}/{payload}", "hold", str(cap(world)), str(hold)], user="root", timeout=60)
            try:
                if not holder.until(b"HOLDING"):
                    raise Fail(f"the bomb said {holder.stdout!r}")
                got = holder.stdout.decode().split()[1]
                for user in ("user", "root"):
                    verdict = world.inside(payload, ["probe"], user, world.neighbour)
                    if verdict.word != "BLOCKED":
                        raise Fail(f"the attacker holds {got}; the neighbour's {user}: {verdict}")
                host = probe_host(world)
                if host.word != "BLOCKED":
                    raise Fail(f"the attacker holds {got}; the host: {host}")
            finally:
                holder.close()
        finally:
            world.drop_sandbox(sandbox)
        return held(control(world), f"the attacker got {got}")

    return Row(name, attack, protection, run, lambda world: held(control(world)))


def server_rss(world):
    return int(status_of(world.server.pid)["VmRSS"].split()[0]) >> 10


def output_flood(world):
    """A process that prints without end, and a client that does not read."""
    sandbox = world.new_sandbox()
    try:
        before = server_rss(world)
        flood = sandbox.start(["/usr/bin/yes"], timeout=30)
        watch = Watch(world)
        time.sleep(4)
        neighbour = watch.verdict()
        grown = server_rss(world) - before
        flood.close()
        if grown > 64:
            raise Fail(f"the server grew by {grown} MiB")
        # Control: a client that reads gets a flood.
        begun, seen = time.monotonic(), 0
        reader = sandbox.start(["/usr/bin/yes"], timeout=30)
        for _, data in reader.events():
            seen += len(data)
            if time.monotonic() - begun > 1:
                break
        reader.close()
        if seen < 1 << 20:
            raise Fail(f"the control read only {seen} bytes in a second")
        return held("a reader is flooded", f"server grew by {grown} MiB; {neighbour}")
    finally:
        world.drop_sandbox(sandbox)


def pid_args(world):
    return [limits_of(world)["pids"] + 100, 4]


def memory_args(world):
    return [limits_of(world)["memory"] + 64]


def disk_args(world):
    return [limits_of(world)["disk"] + 64]


def disk_control_args(world):
    cap = limits_of(world)["disk"] + 64
    free = os.statvfs(world.work)
    if free.f_bavail * free.f_frsize >> 20 < 2 * cap:
        raise Skip("no control on this machine: too little free disk")
    return [cap, world.work]


def inode_args(world):
    """More than the sandbox's own file system has."""
    if not world.api:
        return [330_000]
    code, out, _ = world.main.run(["/usr/bin/stat", "-f", "-c", "%c", "/"])
    return [int(out) + 1000]


def descriptor_args(world):
    """Half of what the whole machine may have; where that is no limit, more than the sandbox's memory holds."""
    most = int(read_text("/proc/sys/fs/file-max"))
    if most < 1 << 40:
        return [most // 2, 1, "null"]
    return [limits_of(world)["memory"] * 1200, 1, "memfd"]


def aio_cap(world):
    return int(read_text("/proc/sys/fs/aio-max-nr"))


def inotify_cap(world):
    return int(read_text("/proc/sys/fs/inotify/max_user_instances")) + 50


def pty_cap(world):
    return int(read_text("/proc/sys/kernel/pty/max"))


STRANGER = 54321  # an id that nobody has, for controls that use up something per user

ROWS = [
    bomb("fork_bomb", "fork without end", "pids limit of the cgroup", "fork_bomb", pid_args),
    bomb("thread_bomb", "start threads without end", "pids limit of the cgroup", "thread_bomb", pid_args),
    bomb("memory_bomb", "take memory without end", "memory limit of the cgroup", "memory_bomb", memory_args, need_mib=1024),
    bomb("shm_filler", "fill /dev/shm", "size of the tmpfs; memory limit", "shm_filler", memory_args, need_mib=1024),
    bomb("disk_filler", "fill the disk", "own disk image of fixed size", "disk_filler", disk_args, disk_control_args),
    bomb("inode_filler", "make files without end", "own file system with a fixed number", "inode_filler", inode_args,
         users=("user",), timeout=300),
    bomb("descriptor_bomb", "open files without end", "memory limit of the cgroup counts them", "descriptor_bomb",
         descriptor_args, need_mib=2048, users=("user",)),
    bomb("socket_bomb", "fill socket and pipe buffers", "memory limit of the cgroup counts them", "socket_bomb", memory_args,
         need_mib=1024),
    starve("pty_starvation", "use up the kernel's terminals", "limit of the sandbox's devpts", "pty_bomb", pty_cap),
    starve("inotify_starvation", "use up inotify instances", "own owner of each user namespace", "inotify_bomb", inotify_cap,
           control_uid=STRANGER),
    starve("aio_starvation", "use up the kernel's asynchronous I/O contexts", "not on the seccomp allow-list", "aio_bomb", aio_cap),
    Row("output_flood", "print without end to a client that does not read", "bounded buffers, back-pressure to the process",
        output_flood),
]
