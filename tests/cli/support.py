"""A server in a home of its own, the command line against it, and a place for checks."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ATOLL_BUILD", ROOT / "build" / "release"))
ATOLL = str(BUILD / "bin/atoll")
os.environ.setdefault("ATOLL_TEMPLATES", "/var/lib/atoll/templates")
os.environ.setdefault("ATOLL_TOOLS", "/var/lib/atoll/tools")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("E2B_") and name != "ATOLL_HOME"}


class Failed(Exception):
    pass


def check(condition, what):
    if not condition:
        raise Failed(what)


def equal(found, expected, what=""):
    check(found == expected, f"{what}: expected {expected!r}, found {found!r}")


def until(what, ask, limit=10):
    end = time.monotonic() + limit
    while not (value := ask()):
        check(time.monotonic() < end, f"{what}: not within {limit} s")
        time.sleep(0.02)
    return value


class Machine:
    """One home; `atoll(...)` runs the command line in it."""

    def __init__(self, home):
        self.home = Path(home)
        self.home.mkdir(parents=True, exist_ok=True)
        self.log = BUILD / "cli-server.log"

    def atoll(self, *words, stdin=b"", code=0, timeout=60, env=None):
        """stdout; the exit status must be `code`. --home goes behind the verbs: what follows may be a command."""
        verbs = 2 if words[0] in ("sandbox",) else 1
        done = subprocess.run([ATOLL, *words[:verbs], *([] if env else ["--home", str(self.home)]), *words[verbs:]],
                              input=stdin, capture_output=True, timeout=timeout, env={**CLEAN, **(env or {})})
        self.stderr = done.stderr.decode()
        if code is not None:
            check(done.returncode == code, f"atoll {' '.join(words)}: exit {done.returncode}, expected {code}\n{done.stdout.decode()}{self.stderr}")
        return done.stdout.decode()

    def up(self, *options):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([ATOLL, "up", "--home", str(self.home), "--listen", "127.0.0.1:0", *options], env=CLEAN,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        self.exports = dict(re.findall(r"^export (\w+)=(.*)$", self.process.stdout.read().decode(), re.MULTILINE))
        check("E2B_API_KEY" in self.exports, "the server did not start: " + self.log.read_text(errors="replace")[-1500:])

    def facts(self):
        return json.loads((self.home / "state/server.json").read_text())

    def stop(self, number=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    def sandboxes(self, *filters):
        return json.loads(self.atoll("sandbox", "ls", "--json", *filters))


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, argv, rows=24, columns=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(argv[0], argv, {**CLEAN, "TERM": "xterm"})
        self.seen = b""
        self.resize(rows, columns)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, text, limit=10):
        end = time.monotonic() + limit
        while text.encode() not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            check(ready, f"{text!r} did not come; the terminal shows {self.seen[-600:]!r}")
            try:
                self.seen += os.read(self.fd, 4096)
            except OSError:
                check(text.encode() in self.seen, f"it ended without {text!r}: {self.seen[-600:]!r}")
        self.seen = self.seen.split(text.encode(), 1)[1]

    def end(self, limit=10):
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self.fd], [], [], 0.05)
            try:
                if ready:
                    self.seen += os.read(self.fd, 4096)
            except OSError:
                pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        check(False, f"it did not end; the terminal shows {self.seen[-600:]!r}")

    def expect_prompt(self, text, limit=10):
        """The editor shows its prompt before it takes the terminal over; keys count from then on."""
        self.expect(text, limit)
        end = time.monotonic() + limit
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            check(time.monotonic() < end, f"the editor does not take the terminal over; it shows {self.seen[-600:]!r}")
            time.sleep(0.01)


def run_tests(name, tests, machine):
    """Every test gets the machine; failures are told and counted."""
    failed = []
    for test in tests:
        title = (test.__doc__ or test.__name__).strip().split("\n")[0]
        began = time.monotonic()
        try:
            test(machine)
            print(f"ok    {title} ({time.monotonic() - began:.1f} s)", flush=True)
        except Exception as failure:  # noqa: BLE001 - the next tests tell more
            failed.append(title)
            where = traceback.extract_tb(failure.__traceback__)
            lines = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in where][-3:]
            print(f"FAIL  {title}: {type(failure).__name__}: {failure} ({', '.join(lines)})", flush=True)
    print(f"{name}: {len(tests) - len(failed)} of {len(tests)} passed")
    return not failed


def leaks(home):
    done = subprocess.run([sys.executable, str(ROOT / "tests/testing/leakcheck"), str(home)], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout
