"""A Node runner under test: the client of the Python tests with another command and pipes as its output."""

import os
import socket
import subprocess

import client

COMMAND = ["node", "/run/atoll/kernels/js/main.cjs"]


class NodeRunner(client.Runner):
    command = COMMAND

    def __init__(self, cwd="/home/user", env=client.ENV, start=True):
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=client.ENV, cwd="/",
            preexec_fn=lambda: os.dup2(theirs.fileno(), 3), close_fds=False, start_new_session=True,
        )
        theirs.close()
        self._sock = ours
        self._have = b""
        self.pid = self.process.pid
        if start:
            self.start(cwd, env)

    def close(self):
        super().close()
        self.process.stdout.close()
        self.process.stderr.close()


class NodeTest(client.RunnerTest):
    @classmethod
    def setUpClass(cls):
        cls.runner = NodeRunner()

    def text(self, code, **more):
        return self.ok(code, **more).text

    def error(self, code, **more):
        run = self.run_code(code, **more)
        self.assertIsNotNone(run.error, run.lines)
        return run.error
