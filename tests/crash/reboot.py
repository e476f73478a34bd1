"""Part `reboot`: the host loses its power while sandboxes are paused, and starts again.

The home is on a disk of its own that is shut down without writing anything more; then every process of the server and its sandboxes dies, mounts, cgroups and
what was below /run/atoll go (this part has a tmpfs there). A new server finds the home and nothing else. What was answered has to be there.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from client import Inside
from disk import Disk, detach, tool
from load import Violation, patiently
from server import leakcheck
from watched import LIFE, Watched, end_everything

RUN = "/run/atoll"
CODE_PORT = "49999"
GONE_LIMIT = 30


def cell(api, sandbox, code):
    """The text of a cell's result."""
    headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": CODE_PORT, "Content-Type": "application/json"}
    if sandbox.get("envdAccessToken"):
        headers["X-Access-Token"] = sandbox["envdAccessToken"]
    answer = api.request("POST", "/execute", headers, json.dumps({"code": code}))
    if answer.status != 200:
        raise Violation(f"execute: {answer}")
    messages = [json.loads(line) for line in answer.body.splitlines() if line]
    if wrong := [message for message in messages if message["type"] == "error"]:
        raise Violation(f"execute {code!r}: {wrong[0]}")
    return next((message["text"] for message in messages if message.get("is_main_result")), None)


def wait_until(good, what):
    end = time.monotonic() + GONE_LIMIT
    while not good():
        if time.monotonic() > end:
            raise Violation(f"{what} not within {GONE_LIMIT} s")
        time.sleep(0.02)


def lose_power(server, disk):
    disk.lose_power()
    while alive := {pid for pid in server.own_processes() if leakcheck.read(f"/proc/{pid}/stat").rpartition(")")[2][1:2] not in ("", "Z")}:
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        thaw(server)  # frozen ones die only then
        time.sleep(0.02)
    server.process.wait()
    for root in leakcheck.cgroup_roots([str(server.home)]):
        for path in sorted(Path(root).glob("**/"), key=lambda path: -len(path.parts)):
            wait_until(lambda path=path: remove(path), f"cgroup {path} is gone")
    for link in Path(RUN, "links").glob("[0-9]*"):
        subprocess.run(["nft", "delete", "table", "ip", f"atoll{link.name}"], capture_output=True)  # of this network namespace
    detach(RUN)  # and what was mounted below it: the router
    wait_until(lambda: try_unmount(disk), "the home is unmounted")


def thaw(server):
    for root in leakcheck.cgroup_roots([str(server.home)]):
        for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            for path in Path(root).glob(f"**/{name}"):
                try:
                    path.write_text(word)
                except OSError:
                    continue


def remove(path):
    try:
        path.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def try_unmount(disk):
    try:
        disk.unmount()
    except OSError:
        return False
    return True


def power_up(server, disk):
    tool("mount", "-t", "tmpfs", "-o", "mode=755", "atoll-run", RUN)
    disk.mount()
    return server.start()


class Kernel:
    """A sandbox with a Python kernel that has variables, and a process that it started."""

    def __init__(self, api):
        answer = api.call("POST", "/v2/sandboxes", {"templateID": "code-interpreter-v1", "timeout": LIFE})
        if answer.status != 201:
            raise Violation(f"create: {answer}")
        self.api, self.sandbox = api, answer.json
        self.target = f"/sandboxes/{answer.json['sandboxID']}"
        cell(api, self.sandbox, "import numpy, subprocess\nx = {'a': numpy.arange(1000)}\np = subprocess.Popen(['sleep', '100000'])")
        self.pid = self.ask("p.pid")

    def ask(self, code):
        return cell(self.api, self.sandbox, code)

    def check(self):
        if (found := self.ask("int(x['a'].sum()), p.poll(), p.pid")) != f"(499500, None, {self.pid})":
            raise Violation(f"variables and process of the kernel: {found}")


def run(options, server):
    os.makedirs(RUN, exist_ok=True)
    disk = Disk(server.home.parent, 6 << 10)
    tool("mount", "-t", "tmpfs", "-o", "mode=755", "atoll-run", RUN)
    disk.make()
    server.mounts = [disk.place, RUN]
    try:
        return story(server, disk)
    finally:
        server.stop()
        disk.remove()


def story(server, disk):
    api = server.start()
    watched, kernel = Watched(api), Kernel(api)
    copied = Watched(api)
    snapshot = copied.expect(api.call("POST", copied.target + "/snapshots", {}, timeout=120), 201).json["snapshotID"]
    stopped = Watched(api)
    Inside(api, stopped.id, stopped.token).write("/home/user/kept", b"kept")
    # More than once: the second time what is dumped was restored.
    for number in range(2):
        watched.check()
        watched.pause()
        watched.expect(api.call("POST", kernel.target + "/pause", {"memory": True}, timeout=120), 204)
        watched.expect(api.call("POST", stopped.target + "/pause", {"memory": False}, timeout=120), 204)
        states = {box: row["state"] for box, row in patiently(api.list).items()}
        lose_power(server, disk)
        if left := server.leaks():
            raise Violation(f"the test's own end of the world left something:\n{left}")
        watched.api = kernel.api = copied.api = stopped.api = api = power_up(server, disk)
        after_it(api, watched, kernel, stopped, states, snapshot, copied.last)
    end_everything(api)
    if (code := server.stop()) != 0:
        raise Violation(f"the server ended with {code}")
    if left := server.leaks():
        raise Violation(f"left behind:\n{left}")
    return "2 times without power: memory, processes, files and snapshots are there"


def after_it(api, watched, kernel, stopped, states, snapshot, copied_at):
    rows = patiently(api.list)
    for box, state in states.items():
        # One that ran is gone with its memory, or at rest with its disk. It does not run.
        if state == "paused" and (box not in rows or rows[box]["state"] != "paused"):
            raise Violation(f"{box} was paused and is {rows.get(box, {}).get('state')}")
        if state == "running" and box in rows and rows[box]["state"] == "running":
            raise Violation(f"{box} ran and runs after a reboot")
    watched.resume()
    watched.check()
    watched.must_move()
    watched.expect(api.call("POST", kernel.target + "/connect", {"timeout": LIFE}, timeout=120), 201)
    kernel.check()
    stopped.resume()
    if (kept := patiently(lambda: Inside(api, stopped.id, stopped.token).read("/home/user/kept"))).body != b"kept":
        raise Violation(f"the file of a sandbox without memory: {kept}")
    made = watched.expect(api.call("POST", "/v2/sandboxes", {"templateID": snapshot, "timeout": LIFE}, timeout=120), 201)
    copy = Watched.copy(watched, made.json, copied_at)
    copy.check(same_boot=False)
    copy.kill()
