"""gVisor's checkpoint and restore of a Python with the same libraries and as much data, in the same template; where runsc is installed."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Progress
from peers import ENV, IMPORTS

READY_LIMIT = 120


class Runsc:
    def __init__(self, rootfs):
        self.rootfs = str(rootfs)
        self.program = shutil.which("runsc")

    @property
    def installed(self):
        return self.program is not None

    def call(self, state, *arguments, output=subprocess.DEVNULL):
        """Milliseconds of one call."""
        command = [self.program, f"--root={state}", "--network=none", "--platform=systrap", "--overlay2=root:memory", "--ignore-cgroups", *arguments]
        with tempfile.TemporaryFile() as said:
            began = time.perf_counter()
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=said)
            took = (time.perf_counter() - began) * 1000
            if done.returncode != 0:
                said.seek(0)
                sys.exit(f"runsc {' '.join(map(str, arguments))}: {said.read().decode(errors='replace')[-500:]}")
        return took

    def bundle(self, directory, mb):
        program = f"{IMPORTS}\nimport os, time\ndata = os.urandom({mb} << 20)\nprint('ready', flush=True)\nwhile True: time.sleep(1)"
        config = {
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/usr/bin/python3", "-c", program], "cwd": "/tmp",
                        "env": [f"{name}={value}" for name, value in {**ENV, "HOME": "/tmp"}.items()]},
            "root": {"path": self.rootfs},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
        }
        (directory / "config.json").write_text(json.dumps(config))

    def samples(self, mb, rounds):
        """{"checkpoint": ms, "restore": ms, "image": bytes}, each a list."""
        found = {"checkpoint": [], "restore": [], "image": []}
        progress = Progress(f"runsc, {mb} MB", rounds)
        for number in range(rounds):
            with tempfile.TemporaryDirectory(prefix="bench-runsc-") as place:
                directory, state, image = Path(place), Path(place) / "state", Path(place) / "image"
                self.bundle(directory, mb)
                names = [f"bench-{os.getpid()}-{number}-{part}" for part in ("source", "copy")]
                with open(directory / "out", "wb") as out:
                    self.call(state, "run", "-detach", "-bundle", directory, names[0], output=out)
                self.wait_ready(directory / "out")
                found["checkpoint"].append(self.call(state, "checkpoint", "-compression=none", f"-image-path={image}", names[0]))
                found["image"].append(sum(file.stat().st_size for file in image.iterdir()))
                found["restore"].append(self.call(state, "restore", "-detach", f"-image-path={image}", "-bundle", directory, names[1]))
                for name in names:
                    subprocess.run([self.program, f"--root={state}", "delete", "-force", name], capture_output=True)
            progress.step()
        return found

    @staticmethod
    def wait_ready(out):
        end = time.monotonic() + READY_LIMIT
        while b"ready" not in out.read_bytes():
            if time.monotonic() > end:
                sys.exit(f"runsc: not ready after {READY_LIMIT} s")
            time.sleep(0.01)
