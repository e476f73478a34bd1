"""What others need for the first result of the same cell: bubblewrap or runsc with a cold Python in the same template, a Jupyter kernel."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    from jupyter_client import KernelManager
except ImportError:
    KernelManager = None

IMPORTS = "import numpy, pandas, matplotlib.pyplot"
# A home without files of ours, and one thread as in the kernels that are compared.
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}


class ColdPython:
    """A new sandbox of another kind, Python in it, the imports, one line of output; milliseconds until that line."""

    def __init__(self, rootfs):
        self.rootfs = str(rootfs)
        # Kept over the rounds: matplotlib's list of fonts is made once.
        self.home = tempfile.mkdtemp(prefix="bench-home-")
        self.program = ["/usr/bin/python3", "-c", f"{IMPORTS}; print(1 + 1, flush=True)"]

    def bubblewrap(self):
        return self.first_line([
            shutil.which("bwrap"), "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
            "--unshare-cgroup-try", "--uid", "1000", "--gid", "1000", "--ro-bind", self.rootfs, "/", "--proc", "/proc", "--dev", "/dev",
            "--tmpfs", "/tmp", "--bind", self.home, "/home/user", "--chdir", "/home/user", "--die-with-parent", *self.program])

    def runsc(self):
        return self.first_line([
            shutil.which("runsc"), "--network=none", "--ignore-cgroups", "do", f"--root={self.rootfs}", "--cwd=/tmp",
            "env", *(f"{name}={value}" for name, value in {**ENV, "HOME": "/tmp"}.items()), *self.program])

    @staticmethod
    def first_line(command):
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
        line = process.stdout.readline()
        took = (time.perf_counter() - began) * 1000
        _, said = process.communicate()
        if line != b"2\n":
            sys.exit(f"{command[0]}: {said.decode(errors='replace')[-500:]}")
        return took

    def close(self):
        shutil.rmtree(self.home, ignore_errors=True)


class Jupyter:
    """A kernel of ipykernel on the host, without any sandbox, by the client that Jupyter uses (ZMQ on loopback)."""

    def __init__(self):
        self.manager = self.client = None

    def open(self):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code="1+1"):
        """Milliseconds until its result is here and the kernel is idle."""
        results = []

        def look(message):
            if message["msg_type"] == "execute_result":
                results.append(message["content"]["data"]["text/plain"])

        began = time.perf_counter()
        self.client.execute_interactive(code, timeout=60, output_hook=look)
        took = (time.perf_counter() - began) * 1000
        if results != ["2"]:
            sys.exit(f"the Jupyter kernel answered {results}")
        return took

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def first(self):
        """Milliseconds from nothing to the first result with everything imported."""
        began = time.perf_counter()
        self.open()
        self.run(f"{IMPORTS}\n1+1")
        took = (time.perf_counter() - began) * 1000
        self.close()
        return took


def cold_peers(rootfs):
    """({name: measure}, what is missing here, something to close)"""
    cold = ColdPython(rootfs)
    peers, missing = {}, []
    if shutil.which("bwrap"):
        peers["bubblewrap, cold Python"] = cold.bubblewrap
    else:
        missing.append("bubblewrap")
    if KernelManager:
        peers["Jupyter kernel (no sandbox)"] = Jupyter().first
    else:
        missing.append("python3-ipykernel")
    if shutil.which("runsc"):
        peers["gVisor (runsc do), cold Python"] = cold.runsc
    else:
        missing.append("runsc")
    if not Path(rootfs).is_dir():
        sys.exit(f"{rootfs} is not there: prepare the template first")
    return peers, missing, cold
