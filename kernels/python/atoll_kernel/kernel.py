"""The kernel: a shell that serves the agent over one socket.

Life: `Kernel()` makes the shell (the zygote does it before any fork: no thread, no descriptor), `attach()` takes the socket
and puts the capture of output in place, `serve()` answers until the agent is gone.

Whatever a cell does, a run ends with `done`: what the end needs is held in private names, never looked up in modules that a
cell can change.
"""

from .private import __builtins__  # isort: skip

import json
import os
import sys
import time
import warnings

from . import afterfork, arguments, bundle, images, jsontext, lazy, private, shell as shells, terminal
from .interrupt import Interrupts
from .loop import Loop
from .output import Output, Stream, write_all
from .wire import Wire

BACKEND = "module://matplotlib_inline.backend_inline"

_environ = os.environ
_exit = os._exit
_parse = json.scanner.make_scanner(json.JSONDecoder())  # C code: text, position -> value, end
_string = jsontext.string
_tzset = time.tzset


class Reports(shells.Sink):
    """Results and errors of the current run, as lines."""

    def __init__(self, output):
        self._output = output
        self.has_error = False

    def result(self, data, main):
        output = self._output
        if output.live and not output.forked:
            output.line(bundle.result_line(data, main))

    def error(self, name, value, traceback):
        output = self._output
        if self.has_error:
            return
        self.has_error = True
        if output.forked:
            write_all(2, (traceback + "\n").encode("utf-8", "replace"))
            return
        output.line(f'{{"type":"error","name":{_string(name)},"value":{_string(value)},"traceback":{_string(traceback)}}}')


class Kernel:
    def __init__(self):
        self.shell = shells.create()
        os.system = terminal.system
        # The pump is a thread; a cell that forks need not hear of it.
        warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)
        self.hooks = lazy.ImportHooks()
        self.hooks.add("PIL.Image", images.install)

    # --- life

    def attach(self, descriptor):
        self.interrupts = Interrupts()
        self.interrupts.install()
        self.wire = Wire.of_descriptor(descriptor)
        self.output = Output(self.wire, self.interrupts)
        self.loop = Loop()
        self.reports = Reports(self.output)
        self.shell.sink = self.reports
        self.shell.loop = self.loop
        self.shell.interrupts = self.interrupts
        self.shell.loop_runner = self.loop.run
        self.streams = (
            Stream(self.output, self.output.stdout, "<stdout>"),
            Stream(self.output, self.output.stderr, "<stderr>"),
        )
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = self.streams
        self.start_env = {}
        os.register_at_fork(after_in_child=self._after_fork_in_child)

    def serve(self):
        """Until the agent is gone."""
        wire, loop = self.wire, self.loop
        while True:
            if not wire.has_line() and not loop.idle():
                loop.serve_until(wire.fileno())
            line = wire.read_line()
            if line is None:
                _exit(0)
            request = _parse(line.decode("utf-8"), 0)[0]
            op = request["op"]
            if op == "execute":
                self.execute(request)
            elif op == "start":
                self.start(request)
            elif op == "warm":
                self.warm()
                self.output.bare_line('{"type":"warmed"}')
            elif op == "forked":
                self.forked(request)

    def start(self, request):
        environ = request.get("env") or {}
        _environ.clear()
        for name, value in environ.items():
            _set_variable(name, value)
        _environ.setdefault("MPLBACKEND", BACKEND)
        self.start_env = dict(_environ)
        _tzset()
        for path in (request.get("cwd"), _environ.get("HOME"), "/"):
            try:
                os.chdir(path)
                break
            except (OSError, TypeError, ValueError):
                continue
        _extend_path()
        self.shell.home_dir = _environ.get("HOME", "/")
        self.shell.starting_dir = os.getcwd()
        self.shell.user_ns["_dh"][:] = [self.shell.starting_dir]
        self.output.bare_line('{"type":"ready"}')

    def forked(self, request):
        """This process is a copy of another one now."""
        for name, value in (request.get("env") or {}).items():
            _set_variable(name, value)
            self.start_env[name] = value
        afterfork.reseed(bytes.fromhex(request["seed"]))

    # --- one run

    def execute(self, request):
        shell, output, interrupts, loop = self.shell, self.output, self.interrupts, self.loop
        output.bare_line('{"type":"started","execution_count":%d}' % shell.execution_count)
        self.reports.has_error = False
        shell.wants_exit = False
        env = request.get("env")
        given = request.get("arguments")
        output.begin()
        try:
            try:
                interrupts.ensure()
                self._restore_streams()
                interrupts.arm()
                if env:
                    for name, value in env.items():
                        _set_variable(name, value)
                loop.enter()
                if "_oh" not in shell.user_ns:  # a cell has cleared its globals
                    shell.init_user_ns()
                if given is None:
                    self._cell(request["code"])
                else:
                    self._call(request["code"], given)
            finally:
                interrupts.disarm()
        except BaseException as error:
            interrupts.disarm()
            self._failed(error)
        if output.forked:  # a child of os.fork() that came back from its cell
            _exit(self.reports.has_error)
        self._finish(env)

    def _cell(self, code):
        result = self.shell.run_cell(code, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None and not self.reports.has_error:
            name, value = type(error).__name__, shells.safe_text(error)
            if name == "UsageError":  # of a magic; IPython has printed it
                self.reports.error(name, value, "")
            else:  # IPython could not even show it
                self.reports.error(name, value, f"{name}: {value}")
                private.repair()
        return error is None

    def _call(self, code, given):
        hook = self.shell.displayhook
        hook.muted = True
        try:
            if not self._cell(code):
                return
        finally:
            hook.muted = False
        try:
            data = arguments.call(self.shell, given, self.loop.run)
        except arguments.Refused as refused:
            self.reports.error(refused.name, refused.value, "")
            return
        except BaseException as error:
            trace = error.__traceback__
            while trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_here):
                trace = trace.tb_next
            with self.shell.builtin_trap:
                self.shell.showtraceback((type(error), error, trace), tb_offset=0, exception_only=isinstance(error, SystemExit))
            return
        self.reports.result(data, True)
        self.shell.events.trigger("post_execute")

    def _failed(self, error):
        """IPython itself did not survive the cell, or the interrupt came outside of it."""
        try:
            name = type(error).__name__
            self.reports.error(name, shells.safe_text(error), f"{name}: {shells.safe_text(error)}")
        except BaseException:
            pass
        private.repair()

    def _finish(self, env):
        try:
            self.loop.leave()
            if env:
                for name in env:
                    value = self.start_env.get(name)
                    if value is None:
                        _environ.pop(name, None)
                    else:
                        _set_variable(name, value)
        except BaseException:
            pass
        restart = self.shell.wants_exit
        self.output.end()
        self.output.bare_line('{"type":"done","restart":true}' if restart else '{"type":"done"}')

    def _restore_streams(self):
        """A cell may keep its own stream in sys.stdout; a closed or missing one is replaced."""
        out, err = self.streams
        if getattr(sys, "stdout", None) is out and getattr(sys, "stderr", None) is err:
            return
        for name, ours in (("stdout", out), ("stderr", err)):
            stream = getattr(sys, name, None)
            try:
                usable = stream is not None and not getattr(stream, "closed", False)
            except Exception:
                usable = False
            if not usable:
                setattr(sys, name, ours)

    # --- warming

    def warm(self):
        """Touches what a first cell touches. Nothing of it is seen later."""
        from . import warming

        warming.first_cell(self)

    def _after_fork_in_child(self):
        self.output.after_fork_in_child()
        self.loop.after_fork_in_child()
        self.interrupts.armed = True  # as in any program


_here = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _set_variable(name, value):
    try:
        _environ[name] = value
    except (ValueError, OSError, TypeError):
        pass  # no such name can exist (empty, "=", NUL)


def _extend_path():
    """What the interpreter does at its start with variables that are known only now."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    added = [p for p in _environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    home = _environ.get("HOME")
    if home and not _environ.get("PYTHONNOUSERSITE"):
        packages = os.path.join(home, ".local", "lib", version, "site-packages")
        if os.path.isdir(packages) and packages not in sys.path:
            at = next((i for i, p in enumerate(sys.path) if p.endswith("dist-packages")), len(sys.path))
            sys.path.insert(at, packages)
    for path in reversed(added):
        if path not in sys.path:
            sys.path.insert(1, path)
