"""A bare agent for E2B_DEBUG=true: it owns a throw-away copy of the base template in namespaces of its own, and its
clients join its network namespace, so that any number of them can use port 49983 side by side."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .server import TEMPLATES, StartFailed, program

PORT = 49983
SETUP = Path(__file__).with_name("bare-root.sh")


class BareAgent:
    """Context manager. Nothing outlives it: mounts, processes and the network end with their namespaces."""

    def __init__(self, log, agent=None, rootfs=None):
        self.log = Path(log)
        self.agent = Path(agent or program("atoll-agent"))
        self.rootfs = Path(rootfs or TEMPLATES / "base" / "rootfs")
        self.process = None
        self.directory = None

    def inside(self, command):
        """The command as run in the agent's network."""
        return ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "--", *command]

    def __enter__(self):
        for needed in (self.agent, self.rootfs):
            if not needed.exists():
                raise StartFailed(f"{needed} is missing: run ./atoll build")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.directory = Path(tempfile.mkdtemp(prefix="atoll-bare-"))
        with open(self.log, "wb") as log:
            # unshare stays outside the new pid namespace as the parent; its death ends the agent with SIGKILL.
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "--pid", "--net", "--uts", "--ipc",
                 "--fork", "--kill-child=KILL",
                 "bash", str(SETUP), str(self.rootfs), str(self.directory), str(self.agent), str(PORT)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + 20
        probe = ["curl", "-sf", "-o", "/dev/null", f"http://localhost:{PORT}/health"]
        while subprocess.run(self.inside(probe), stderr=subprocess.DEVNULL).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise StartFailed(f"the bare agent did not start; its log ends:\n{self.tail()}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.directory is not None:
            # The overlay is gone once the last process of the namespace is; until then its work directory is busy.
            for _ in range(50):
                shutil.rmtree(self.directory, ignore_errors=True)
                if not self.directory.exists():
                    break
                time.sleep(0.1)

    def tail(self, lines=40):
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return f"({error})"
