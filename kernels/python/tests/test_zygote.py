"""Copies of one prepared process: they serve as any runner does, and share nothing that they should not.

The forks are Python's own here; those of kernels/zygote are tested with the warden and the agent.
"""

import os
import socket
import sys
import unittest

import client

PREPARE = """
import os, socket, sys
sys.path.insert(0, {here!r})
import zygote, gc
kernel, generators = zygote.prepare(zygote.MODULES)
assert len(os.listdir("/proc/self/task")) == 1, "threads"
gc.collect(); gc.freeze()
nursery = socket.socket(fileno=3)
nursery.send(b"ready")
while True:
    data, fds, _, _ = socket.recv_fds(nursery, 16, 1)
    if not data:
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        os.dup2(fds[0], 3, inheritable=False)
        os.closerange(4, 64)
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2): os.dup2(null, fd)
        os.close(null)
        os.setsid()
        zygote.become_kernel(kernel, generators)
    os.close(fds[0])
    nursery.send(b"pid %d" % pid)
"""


class Nursery:
    def __init__(self):
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.posix_spawn(
            sys.executable, [sys.executable, "-c", PREPARE.format(here="/run/atoll/kernels/python")],
            {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "SECRET": "zygote"}, file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)],
        )
        theirs.close()
        self.sock.settimeout(60)
        assert self.sock.recv(16) == b"ready"

    def fork(self, start=True):
        ours, theirs = socket.socketpair()
        socket.send_fds(self.sock, [b"fork"], [theirs.fileno()])
        theirs.close()
        pid = int(self.sock.recv(64).split()[1])
        return client.Runner.adopt(ours, pid, start)

    def close(self):
        self.sock.close()
        os.waitpid(self.pid, 0)


class Siblings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nursery = Nursery()
        cls.kernels = [cls.nursery.fork() for _ in range(3)]

    @classmethod
    def tearDownClass(cls):
        for kernel in cls.kernels:
            kernel.close()
        cls.nursery.close()

    def differ(self, code):
        texts = []
        for kernel in self.kernels:
            run = kernel.run(code)
            self.assertIsNone(run.error)
            texts.append(run.text)
        self.assertEqual(len(set(texts)), len(texts), f"{code}: {texts}")

    def test_siblings_differ(self):
        for code in (
            "import random; random.random()", "import numpy; float(numpy.random.rand())", "import uuid; uuid.uuid4()", "uuid.uuid1()",
            "import tempfile; tempfile.mktemp()", "import secrets; secrets.token_hex()", "import ssl; ssl.RAND_bytes(16)", "numpy.random.default_rng().random()",
            "import multiprocessing; bytes(multiprocessing.current_process().authkey)", "os.getpid()",
        ):
            self.differ(code)

    def test_first_cell_is_number_one(self):
        kernel = self.nursery.fork()
        self.addCleanup(kernel.close)
        kernel.send({"op": "warm"})
        self.assertEqual(kernel.line(), {"type": "warmed"})
        run = kernel.run("sorted(n for n in globals() if not n.startswith('_'))")
        self.assertEqual(run.count, 1)
        self.assertEqual(run.text, "['In', 'Out', 'exit', 'get_ipython', 'open', 'os', 'quit']")
        run = kernel.run("len(In), len(Out), hasattr(__import__('sys'), 'last_value')")
        self.assertEqual((run.count, run.text), (2, "(3, 1, False)"))

    def test_warm_before_start(self):
        kernel = self.nursery.fork(start=False)
        self.addCleanup(kernel.close)
        kernel.send({"op": "warm"})
        self.assertEqual(kernel.line(), {"type": "warmed"})
        kernel.start()
        run = kernel.run("1+1")
        self.assertEqual((run.count, run.text), (1, "2"))

    def test_nothing_of_the_zygote(self):
        kernel = self.kernels[0]
        self.assertEqual(kernel.run("sorted(os.environ)").text, str(sorted([*client.ENV, "MPLBACKEND"])))
        self.assertEqual(kernel.run("os.getcwd()").text, "/home/user")
        self.assertEqual(kernel.run("__import__('matplotlib').get_configdir()").text, "/home/user/.config/matplotlib")
        self.assertEqual(kernel.run("get_ipython().home_dir, _dh").text, "('/home/user', ['/home/user'])")
        self.assertEqual(kernel.run("import sys; sys.path[0], [p for p in sys.path if 'atoll' in p], sys.argv").text, "('', [], [''])")

    def test_libraries_are_there(self):
        run = self.kernels[0].run("import sys; [m in sys.modules for m in ('numpy', 'pandas', 'matplotlib.pyplot', 'PIL.Image')]")
        self.assertEqual(run.text, "[True, True, True, True]")

    def test_figures_frames_errors(self):
        for kernel in self.kernels[:2]:
            run = kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
            self.assertIsNone(run.error)
            self.assertEqual([r["chart"]["type"] for r in run.results], ["line"])
            run = kernel.run("import pandas as pd\npd.DataFrame({'a': range(30), **{str(i): 0 for i in range(40)}})")
            self.assertIn("[30 rows x 41 columns]", run.text)
            self.assertIn("...", run.text)
            self.assertEqual(kernel.run("1/0").error["name"], "ZeroDivisionError")

    def test_interrupt(self):
        kernel = self.kernels[1]
        kernel.begin("print('on', flush=True)\nwhile True: pass")
        first = [kernel.line(), kernel.line()]
        kernel.interrupt()
        run = client.Run()
        run.lines = first
        self.assertEqual(kernel.finish(run).error["name"], "KeyboardInterrupt")
