"""Cells that damage what the runner stands on. Each run ends with `done`, and the next one works."""

import time

from client import Died, Run, Runner, RunnerTest


class Damage(RunnerTest):
    def still_works(self):
        run = self.runner.run("print('p'); 40 + 2")
        self.assertEqual((run.stdout, run.text, run.error), (["p\n"], "42", None))

    def test_streams(self):
        for code in (
            "import sys; sys.stdout.close(); sys.stderr.close()", "import sys; sys.stdout = None", "import sys; del sys.stdout, sys.stderr",
            "import sys\nclass B:\n    closed = True\nsys.stdout = B()", "os.close(1); os.close(2)", "os.close(0); os.close(1); f = open('/dev/null')",
        ):
            self.runner.run(code)
            self.still_works()

    def test_replaced_stream_is_kept(self):
        self.ok("import io, sys; sys.stdout = io.StringIO(); print('kept')")
        self.assertEqual(self.ok("v = sys.stdout.getvalue(); sys.stdout = sys.__stdout__; v").text, "kept\\n")
        self.still_works()

    def test_descriptors_come_back(self):
        self.runner.run("os.close(1)")
        self.assertEqual(self.ok("os.system('echo x')").stdout, ["x\n"])

    def test_modules(self):
        for code in (
            "import json; json.dumps = json.loads = None; json.JSONEncoder = None; json.encoder.c_make_encoder = None",
            "import sys; saved = dict(sys.modules); sys.modules.clear()", "sys.modules.update(saved)",
            "write, os.write = os.write, None", "os.write = write", "import time; clock, time.perf_counter = time.perf_counter, None", "time.perf_counter = clock",
            "import warnings; warnings.resetwarnings(); warnings.simplefilter('error')", "warnings.resetwarnings()",
            "import sys; sys.excepthook = sys.displayhook = None", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
            "import threading; threading.excepthook = None", "import gc; gc.disable()", "import asyncio; asyncio.set_event_loop(None)",
        ):
            self.runner.run(code)
            self.still_works()

    def test_builtins(self):
        for name in ("len", "isinstance", "str", "print", "__import__", "BaseException", "range"):
            self.runner.run(f"import builtins; kept = builtins.{name}; builtins.{name} = None")
            run = self.runner.run(f"import builtins; builtins.{name} = kept")
            self.runner.run(f"import builtins; builtins.{name} = kept")
            self.assertEqual(run.lines[-1]["type"], "done")
            self.still_works()

    def test_recursion(self):
        run = self.runner.run("def g(): return g()\ng()")
        self.assertEqual(run.error["name"], "RecursionError")
        self.runner.run("import sys; sys.setrecursionlimit(60)\n1/0")
        self.still_works()
        self.runner.run("sys.setrecursionlimit(1000)")

    def test_shell(self):
        self.runner.run("get_ipython().set_custom_exc((Exception,), lambda *a: 1/0)")
        self.assertEqual(self.runner.run("{}['x']").error["name"], "KeyError")
        self.runner.run("def bad(*a): raise ValueError('hook')\nget_ipython().events.register('post_execute', bad)")
        self.runner.run("get_ipython().events.unregister('post_execute', bad)")
        self.still_works()
        self.runner.run("globals().clear()")
        self.runner.run("1/0")

    def test_base_exceptions(self):
        for name in ("KeyboardInterrupt", "GeneratorExit", "BaseException", "MemoryError", "StopIteration"):
            self.assertEqual(self.runner.run(f"raise {name}").error["name"], name)

    def test_finalisers_print(self):
        self.runner.run("class F:\n    def __del__(self): print('z' * 100_000)\nl = [F() for i in range(20)]\nfor i in range(20): l.pop(); print('q' * 70_000)")
        self.still_works()


class Forks(RunnerTest):
    def test_child_that_exits(self):
        run = self.ok("pid = os.fork()\nif pid == 0:\n    print('child')\n    os._exit(0)\nos.waitpid(pid, 0)\nprint('parent')")
        self.assertEqual((run.stdout, run.stderr), (["child\nparent\n"], []))

    def test_child_that_comes_back(self):
        self.assertEqual(self.ok("pid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('both')").stdout, ["both\nboth\n"])
        self.assertEqual(self.ok("1").text, "1")

    def test_child_that_fails_or_displays(self):
        run = self.ok("pid = os.fork()\nif pid == 0:\n    display('child'); 1/0\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))")
        self.assertEqual((run.results, run.stdout), ([], ["1\n"]))
        self.assertIn("ZeroDivisionError", "".join(run.stderr))

    def test_pending_text_is_not_doubled(self):
        self.assertEqual(self.ok("print('once')\npid = os.fork()\nif pid == 0: os._exit(0)\nr = os.waitpid(pid, 0)").stdout, ["once\n"])

    def test_multiprocessing(self):
        self.assertEqual(self.ok("import multiprocessing as mp\nwith mp.Pool(2) as p: r = p.map(abs, [-1, -2])\nr").text, "[1, 2]")
        self.assertEqual(self.ok("p = mp.get_context('fork').Process(target=print, args=('in a process',)); p.start(); p.join()").stdout, ["in a process\n"])

    def test_children_do_not_get_the_socket(self):
        inside = "import os; print([f for f in os.listdir('/proc/self/fd') if int(f) > 2 and os.path.exists('/proc/self/fd/' + f)])"
        run = self.ok(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {inside!r}], close_fds=False)\nNone")
        self.assertEqual(run.stdout, ["[]\n"])

    def test_grandchild_keeps_running(self):
        self.ok("import subprocess; p = subprocess.Popen(['sleep', '30'])")
        self.assertEqual(self.ok("1").text, "1")
        self.ok("p.kill(); r = p.wait()")


class Interrupts(RunnerTest):
    def interrupted(self, code):
        self.runner.begin(f"print('on', flush=True)\n{code}")
        run = Run()
        run.lines = [self.runner.line(), self.runner.line()]
        time.sleep(0.1)
        self.runner.interrupt()
        run = self.runner.finish(run, patience=10)
        self.assertEqual(self.ok("40 + 2").text, "42")
        return run

    def test_busy(self):
        run = self.interrupted("kept = 1\nwhile True: pass")
        self.assertEqual((run.error["name"], run.error["value"]), ("KeyboardInterrupt", ""))
        self.assertTrue(run.error["traceback"].startswith("-" * 75 + "KeyboardInterrupt"))
        self.assertEqual(self.ok("kept").text, "1")

    def test_waiting(self):
        for code in ("import time; time.sleep(100)", "import subprocess; subprocess.run(['sleep', '100'])", "import threading; threading.Event().wait()", "import asyncio; await asyncio.sleep(100)", "import asyncio; asyncio.run(asyncio.sleep(100))"):
            self.assertEqual(self.interrupted(code).error["name"], "KeyboardInterrupt", code)

    def test_printing(self):
        for code in ("while True: print('x' * 1000)", "while True: display(1)", "while True: print(1, flush=True)"):
            self.assertEqual(self.interrupted(code).error["name"], "KeyboardInterrupt", code)

    def test_command(self):
        self.interrupted("!sleep 100")
        self.assertEqual(self.ok("!pgrep -x sleep").stdout, [])

    def test_children(self):
        for code in ("os.system('sleep 100; echo never')", "import subprocess\nsubprocess.run('sleep 100 | cat', shell=True)", "%%bash\nsleep 100; echo never"):
            if code.startswith("%%"):
                self.runner.begin(code)
                time.sleep(1)
                self.runner.interrupt()
                self.runner.finish(patience=10)
            else:
                self.assertEqual(self.interrupted(code).error["name"], "KeyboardInterrupt", code)
            time.sleep(0.2)
            self.assertEqual(self.ok("!pgrep -x sleep").stdout, [], code)

    def test_await_is_cancelled(self):
        self.interrupted("import asyncio\nstate = []\nasync def work():\n    try: await asyncio.sleep(100)\n    except asyncio.CancelledError: state.append('cancelled')\nawait work()")
        self.assertEqual(self.ok("state").text, "['cancelled']")

    def test_main_with_arguments(self):
        self.runner.begin("def main():\n    print('on', flush=True)\n    while True: pass", arguments={})
        run = Run()
        run.lines = [self.runner.line(), self.runner.line()]
        self.runner.interrupt()
        self.assertEqual(self.runner.finish(run).error["name"], "KeyboardInterrupt")

    def test_while_history_takes_a_lock(self):
        """The interrupt comes when the lock is taken and nobody is there yet who would give it back."""
        runner = Runner()
        try:
            runner.run("import signal, threading\nclass Taken:\n    lock = threading.Lock()\n    def __enter__(self):\n        self.lock.acquire()\n        os.kill(os.getpid(), signal.SIGINT)\n"
                       "    def __exit__(self, *error): self.lock.release()\nget_ipython().history_manager.db_input_cache_lock = Taken()")
            for _ in range(2):
                self.assertEqual(runner.run("1").error["name"], "KeyboardInterrupt")
        finally:
            runner.close()

    def test_idle(self):
        for _ in range(20):
            self.runner.interrupt()
        self.assertTrue(self.runner.silent(0.2))
        self.assertEqual(self.ok("1").text, "1")

    def test_at_any_moment(self):
        for i in range(300):
            self.runner.begin("for i in range(50): print(i); display(i)")
            time.sleep((i % 60) / 10_000)
            self.runner.interrupt()
            run = self.runner.finish()
            self.assertIn((run.error or {"name": None})["name"], (None, "KeyboardInterrupt"))
        self.assertEqual(self.ok("1").text, "1")


class Ends(RunnerTest):
    def test_socket_closed(self):
        runner = Runner()
        runner._sock.close()
        self.assertEqual(runner.process.wait(10), 0)

    def test_crashes_end_the_socket(self):
        for code in ("os._exit(3)", "import ctypes; ctypes.string_at(0)", "os.kill(os.getpid(), 9)"):
            runner = Runner()
            self.addCleanup(runner.close)
            runner.begin(code)
            with self.assertRaises((Died, ConnectionError)):
                runner.finish()
