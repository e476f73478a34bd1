"""The agent's side of kernels/protocol.md, enough to drive the runner in tests."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

MAIN = Path(__file__).resolve().parents[1] / "main.py"
LIMIT = 30.0


class Kernel:
    def __init__(self, env=None, cwd="/tmp"):
        ours, theirs = socket.socketpair()

        def place():
            os.dup2(theirs.fileno(), 3)

        self.process = subprocess.Popen([sys.executable, "-IS", str(MAIN)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        preexec_fn=place, close_fds=False, start_new_session=True)
        theirs.close()
        ours.settimeout(LIMIT)
        self.socket = ours
        self.file = ours.makefile("rb")
        self.send({"op": "start", "env": {"PATH": os.environ["PATH"], "HOME": "/tmp", "LANG": "C.UTF-8"} if env is None else env, "cwd": cwd})
        assert self.read() == {"type": "ready"}

    def send(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self):
        line = self.file.readline()
        if not line:
            raise EOFError("the runner ended")
        assert line.isascii() and line.endswith(b"\n"), line
        return json.loads(line)

    def begin(self, code, env=None):
        self.send({"op": "execute", "code": code, **({"env": env} if env else {})})
        self.first = self.read()
        assert self.first["type"] == "started", self.first

    def finish(self):
        run = Run(self.first["execution_count"])
        while True:
            message = self.read()
            if message["type"] == "stdout":
                assert set(message) == {"type", "text", "timestamp"}
                run.stdout.append(message["text"])
            elif message["type"] == "error":
                assert run.error is None
                run.error = message
            else:
                assert message["type"] == "done", message
                run.restart = message.get("restart", False)
                return run

    def run(self, code, env=None):
        self.begin(code, env)
        return self.finish()

    def interrupt(self):
        os.kill(self.process.pid, signal.SIGINT)

    def close(self):
        self.file.close()
        self.socket.close()
        self.process.wait(LIMIT)


class Run:
    def __init__(self, count):
        self.count = count
        self.stdout = []
        self.error = None
        self.restart = False

    @property
    def code(self):
        return self.error and self.error["value"]
