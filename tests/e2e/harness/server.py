"""A server under test: `atoll up` on a free port with a home of its own."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .toolchain import ROOT

BUILD = Path(os.environ.get("ATOLL_BUILD", ROOT / "build" / "release"))
TEMPLATES = Path(os.environ.get("ATOLL_TEMPLATES", "/var/lib/atoll/templates"))


def program(name):
    """The built binary `name`."""
    return next((path for path in (BUILD / "bin" / name, BUILD / "cmd" / name / name) if path.exists()), BUILD / "bin" / name)


START_LIMIT = 60.0
STOP_LIMIT = 30.0


class StartFailed(Exception):
    pass


class Server:
    """Context manager: starts the server, reads its exports, ends it."""

    def __init__(self, home, log, binary=None, options=()):
        self.home = Path(home)
        self.log = Path(log)
        self.binary = Path(binary or program("atoll"))
        self.options = list(options)
        self.exports = {}
        self.process = None

    @property
    def pid(self):
        """Of the server itself; the process that was started is its supervisor."""
        return json.loads((self.home / "state" / "server.json").read_text())["pid"]

    @property
    def env(self):
        """The exports as `atoll up` printed them, and what the raw suites need to look at the processes."""
        return {
            **self.exports,
            "ATOLL_E2E_SERVER_PID": str(self.pid),
            "ATOLL_E2E_HOME": str(self.home),
            "ATOLL_E2E_ATOLL": str(self.binary),
            "ATOLL_TEMPLATES": str(TEMPLATES),
        }

    def __enter__(self):
        if not self.binary.exists():
            raise StartFailed(f"{self.binary} is not built: run ./atoll build")
        self.home.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [str(self.binary), "up", "--home", str(self.home), "--listen", "127.0.0.1:0", *self.options]
        with open(self.log, "wb") as log, tempfile.TemporaryFile() as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True,
                env={**os.environ, "ATOLL_TEMPLATES": str(TEMPLATES)})
            end = time.monotonic() + START_LIMIT
            while True:
                out.seek(0)
                text = out.read().decode()
                self.exports = dict(re.findall(r"^export (E2B_\w+)=['\"]?([^'\"\n]+?)['\"]?$", text, re.MULTILINE))
                if {"E2B_API_URL", "E2B_SANDBOX_URL", "E2B_API_KEY"} <= self.exports.keys() and text.endswith("\n"):
                    return self
                if self.process.poll() is not None or time.monotonic() > end:
                    self.__exit__()
                    raise StartFailed(f"the server did not start; its log ends:\n{self.tail()}")
                time.sleep(0.02)

    def __exit__(self, *_):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)  # SIGTERM would leave the sandboxes
        try:
            self.process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def tail(self, lines=40):
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return f"({error})"
