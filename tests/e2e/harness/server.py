"""A server under test: `atoll up` with a home of its own, by plain HTTP and, with a domain, by HTTPS on port 443."""

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
TOOLS = Path(os.environ.get("ATOLL_TOOLS", "/var/lib/atoll/tools"))


def program(name):
    """The built binary `name`."""
    return next((path for path in (BUILD / "bin" / name, BUILD / "cmd" / name / name) if path.exists()), BUILD / "bin" / name)


START_LIMIT = 60.0
STOP_LIMIT = 30.0


class StartFailed(Exception):
    pass


class Server:
    """Context manager: starts the server, reads its exports, ends it."""

    def __init__(self, home, log, binary=None, options=(), environment=(), domain=None, address="127.0.0.1"):
        self.home = Path(home)
        self.log = Path(log)
        self.binary = Path(binary or program("atoll"))
        self.options = list(options)
        self.environment = dict(environment)
        self.domain = domain
        self.address = address
        self.exports = {}
        self.process = None

    def facts(self):
        """What the server says about itself: pid, url, ..."""
        return json.loads((self.home / "state" / "server.json").read_text())

    @property
    def pid(self):
        """Of the server itself; the process that was started is its supervisor."""
        return self.facts()["pid"]

    def common(self):
        """What suites need to look at the processes."""
        return {
            "E2B_API_KEY": self.exports["E2B_API_KEY"],
            "E2E_SERVER_URL": self.facts()["url"],
            "ATOLL_E2E_HOME": str(self.home),
            "ATOLL_E2E_ATOLL": str(self.binary),
            "ATOLL_TEMPLATES": str(TEMPLATES),
            "ATOLL_TOOLS": str(TOOLS),
        }

    @property
    def env(self):
        """For a client of a server without a domain."""
        return {**self.plain(), "ATOLL_E2E_SERVER_PID": str(self.pid)}

    def plain(self):
        """The environment of a client that knows two URLs."""
        url = self.facts()["url"]
        return {**self.common(), "E2B_API_URL": url, "E2B_SANDBOX_URL": url}

    def secure(self):
        """The environment of a client that knows a domain and a CA, as the server printed it."""
        return {**self.common(), **self.exports}

    def __enter__(self):
        if not self.binary.exists():
            raise StartFailed(f"{self.binary} is not built: run ./atoll build")
        self.home.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "ATOLL_TEMPLATES": str(TEMPLATES), "ATOLL_TOOLS": str(TOOLS), **self.environment}
        command = [str(self.binary), "up", "--home", str(self.home), "--listen", "127.0.0.1:0", *self.options]
        if self.domain:
            made = subprocess.run([str(self.binary), "cert", "--home", str(self.home), self.domain],
                                  capture_output=True, text=True, env=environment)
            if made.returncode != 0:
                raise StartFailed(f"atoll cert {self.domain} failed: {made.stderr}{made.stdout}")
            command += ["--domain", self.domain, "--tls-listen", f"{self.address}:443"]
        wanted = {"E2B_API_KEY", "E2B_DOMAIN" if self.domain else "E2B_API_URL"}
        with open(self.log, "wb") as log, tempfile.TemporaryFile() as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True,
                                            env=environment)
            end = time.monotonic() + START_LIMIT
            while True:
                out.seek(0)
                text = out.read().decode()
                self.exports = dict(re.findall(r"^export (\w+)=['\"]?([^'\"\n]+?)['\"]?$", text, re.MULTILINE))
                if wanted <= self.exports.keys() and text.endswith("\n"):
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
