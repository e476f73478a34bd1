"""The server under its supervisor, with a home of its own; who it consists of, by pid."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

from client import Api
from load import Violation

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ATOLL_BUILD", ROOT / "build" / "release"))
LEAKCHECK = ROOT / "tests/testing/leakcheck"
HEALTHY_LIMIT = 90

loader = SourceFileLoader("leakcheck", str(LEAKCHECK))  # by hand: its name has no ending
leakcheck = module_from_spec(spec_from_loader("leakcheck", loader))
loader.exec_module(leakcheck)


class Server:
    def __init__(self, home, log, options=(), program=BUILD / "bin/atoll"):
        self.home, self.log, self.options, self.program = Path(home), Path(log), list(options), program
        self.process = None
        self.mounts = []  # the test's own; no leaks

    def start(self):
        self.home.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab" if self.process else "wb") as log:
            self.process = subprocess.Popen(
                [str(self.program), "up", "--home", str(self.home), "--listen", "127.0.0.1:0", *self.options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        exports = dict(re.findall(r"^export (\w+)=(.*)$", self.process.stdout.read().decode(), re.MULTILINE))
        if "E2B_API_KEY" not in exports:
            raise Violation(f"the server did not start:\n{self.tail()}")
        self.api = Api(exports["E2B_API_URL"], exports["E2B_API_KEY"])
        return self.api

    def pids(self):
        """(server, warden); None while there is no healthy one."""
        try:
            facts = json.loads((self.home / "state/server.json").read_text())
            os.kill(facts["pid"], 0)
            return facts["pid"], facts["warden"]
        except (OSError, ValueError, KeyError):
            return None

    def patient_pids(self):
        end = time.monotonic() + HEALTHY_LIMIT
        while time.monotonic() < end:
            if pids := self.pids():
                return pids
            time.sleep(0.005)
        raise Violation("there is no server")

    def kill_one(self, victim):
        """Kills the server (0) or the warden (1); returns its pid."""
        pids = self.patient_pids()
        os.kill(pids[victim], signal.SIGKILL)
        return pids[0]

    def wait_for_other(self, server_pid, why):
        """Until another server than this one is healthy. Every death of a server or a warden ends in that."""
        end = time.monotonic() + HEALTHY_LIMIT
        while time.monotonic() < end:
            now = self.pids()
            if now and now[0] != server_pid and self.api.healthy():
                return
            if self.process.poll() is not None:
                raise Violation("the supervisor has ended")
            time.sleep(0.005)
        print(self.what_they_do(), file=sys.stderr)
        raise Violation(f"no healthy server {HEALTHY_LIMIT} s after {why}")

    def own_processes(self):
        """Of the server, its warden and their children, and of all its sandboxes."""
        found = {self.process.pid}
        for root in leakcheck.cgroup_roots([str(self.home)]):
            for path in Path(root).glob("**/cgroup.procs"):
                found.update(int(pid) for pid in leakcheck.read(path).split())
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            fields = leakcheck.read(path).rpartition(")")[2].split()
            if len(fields) > 1:
                parents[int(path.parent.name)] = int(fields[1])
                if f"--home\0{self.home}\0" in leakcheck.read(path.parent / "cmdline"):
                    found.add(int(path.parent.name))
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found

    def what_they_do(self):
        """Where the kernel says that our processes are, for a server that does not come up."""
        lines = []
        for pid in sorted(self.own_processes()):
            status = dict(line.split(":\t", 1) for line in leakcheck.read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
            if status.get("Name", "").startswith(("atoll", "criu", "ld-linux")):
                lines.append(f"{pid} {status['Name']} {status['State']}\n{leakcheck.read(f'/proc/{pid}/stack')}")
        return "\n".join(lines)

    def stop(self):
        """The exit status of an orderly end, which ends the sandboxes too; None if it had to be killed."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None

    def leaks(self):
        """What is left of the home after everything was ended; empty: nothing."""
        done = subprocess.run([sys.executable, str(LEAKCHECK), "--quiet", str(self.home)], capture_output=True, text=True)
        own = {f"mount {place}" for place in self.mounts}
        return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if line not in own)

    def tail(self, lines=60):
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return f"({error})"
