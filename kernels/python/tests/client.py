"""The agent's side of the protocol, for tests: starts a runner, sends runs, reads lines."""

import json
import os
import select
import signal
import socket
import subprocess
import time
import unittest

RUNNER = "/run/atoll/kernels/python/main.py"
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/user", "USER": "user", "LANG": "C.UTF-8", "SHELL": "/bin/bash"}
PATIENCE = 60  # seconds until a silent runner fails the test


for _descriptor in os.listdir("/proc/self/fd"):
    if int(_descriptor) > 2:
        try:
            os.set_inheritable(int(_descriptor), False)
        except OSError:
            pass  # that of the listing


class Died(Exception):
    """The runner closed its socket."""


class Run:
    """What one run sent."""

    def __init__(self):
        self.lines = []

    def texts(self, kind):
        return [line["text"] for line in self.lines if line["type"] == kind]

    def of(self, kind):
        return [line for line in self.lines if line["type"] == kind]

    @property
    def stdout(self):
        return self.texts("stdout")

    @property
    def stderr(self):
        return self.texts("stderr")

    @property
    def results(self):
        return self.of("result")

    @property
    def error(self):
        errors = self.of("error")
        assert len(errors) <= 1, errors
        return errors[0] if errors else None

    @property
    def count(self):
        return self.lines[0]["execution_count"]

    @property
    def text(self):
        main = [line for line in self.results if line["is_main_result"]]
        assert len(main) <= 1, main
        return main[0].get("text") if main else None


class Runner:
    def __init__(self, cwd="/home/user", env=ENV, start=True):
        ours, theirs = socket.socketpair()
        null = os.open("/dev/null", os.O_RDWR)

        def place():
            os.dup2(theirs.fileno(), 3)

        # close_fds would close 3: the child gets it from preexec_fn, and only it.
        self.process = subprocess.Popen(
            ["python3", RUNNER], stdin=null, stdout=null, stderr=null, env=env, cwd="/",
            preexec_fn=place, close_fds=False, start_new_session=True,
        )
        os.close(null)
        theirs.close()
        self._sock = ours
        self._have = b""
        self.pid = self.process.pid
        if start:
            self.start(cwd, env)

    @classmethod
    def adopt(cls, sock, pid, start=True):
        """A runner that somebody else forked."""
        self = cls.__new__(cls)
        self.process, self.pid, self._sock, self._have = None, pid, sock, b""
        if start:
            self.start()
        return self

    def start(self, cwd="/home/user", env=ENV):
        self.send({"op": "start", "env": env, "cwd": cwd})
        line = self.line()
        assert line == {"type": "ready"}, line

    def send(self, request):
        self._sock.sendall(json.dumps(request, ensure_ascii=False).encode() + b"\n")

    def line(self, patience=PATIENCE):
        raw = self.raw_line(patience)
        assert raw.isascii() and raw.strip(), raw[:200]

        def refuse(token):
            raise AssertionError(f"{token} on the wire")

        return json.loads(raw, parse_constant=refuse)

    def raw_line(self, patience=PATIENCE):
        deadline = time.monotonic() + patience
        parts = [self._have]
        while b"\n" not in parts[-1]:
            ready = select.select([self._sock], [], [], max(0, deadline - time.monotonic()))[0]
            if not ready:
                raise TimeoutError(f"no line within {patience} s; got {b''.join(parts)[:300]!r}")
            got = self._sock.recv(1 << 20)
            if not got:
                raise Died()
            parts.append(got)
        line, self._have = b"".join(parts).split(b"\n", 1)
        return line

    def begin(self, code, **more):
        self.send({"op": "execute", "code": code, **more})

    def finish(self, run=None, patience=PATIENCE):
        run = run or Run()
        while not run.lines or run.lines[-1]["type"] != "done":
            run.lines.append(self.line(patience))
        assert run.lines[0]["type"] == "started", run.lines[0]
        return run

    def run(self, code, **more):
        self.begin(code, **more)
        return self.finish()

    def interrupt(self):
        os.kill(self.pid, signal.SIGINT)

    def silent(self, seconds=0.3):
        """Nothing arrives for a while."""
        return not self._have and not select.select([self._sock], [], [], seconds)[0]

    def close(self):
        self._sock.close()
        if self.process is None:
            return
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class RunnerTest(unittest.TestCase):
    """One runner for a class of tests; a test that breaks it makes its own."""

    @classmethod
    def setUpClass(cls):
        cls.runner = Runner()

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def run_code(self, code, **more):
        return self.runner.run(code, **more)

    def ok(self, code, **more):
        run = self.run_code(code, **more)
        self.assertIsNone(run.error)
        return run
