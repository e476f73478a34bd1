"""Cells that nobody sees: they bring code paths and pages in, and leave nothing behind."""

import contextlib
import linecache
import sys


@contextlib.contextmanager
def traceless(kernel):
    """What a cell leaves in the shell and in sys is put back as it was."""
    shell = kernel.shell
    names = dict(shell.user_ns)
    hook = shell.displayhook
    sink, shell.sink = shell.sink, type(shell).sink.default_value
    last = {n: getattr(sys, n) for n in ("last_exc", "last_type", "last_value", "last_traceback") if hasattr(sys, n)}
    underscores = (hook._, hook.__, hook.___)
    streams = sys.stdout, sys.stderr
    lines = set(linecache.cache)
    count = shell.execution_count
    try:
        yield
    finally:
        shell.sink = sink
        sys.stdout, sys.stderr = streams
        shell.user_ns.clear()
        shell.user_ns.update(names)
        shell.user_ns["_oh"].clear()
        shell.user_ns["_dh"][:] = shell.user_ns["_dh"][:1]
        hook._, hook.__, hook.___ = underscores
        shell.execution_count = count
        shell.last_execution_result = None
        shell.wants_exit = False
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            if name in last:
                setattr(sys, name, last[name])
            elif hasattr(sys, name):
                delattr(sys, name)
        for name in set(linecache.cache) - lines:
            if name.startswith("<ipython-input"):
                del linecache.cache[name]


def first_cell(kernel):
    with traceless(kernel):
        kernel.loop.enter()
        try:
            for code in ("print(1)\n1 + 1", "missing_name"):
                kernel.shell.run_cell(code, store_history=False)
        finally:
            kernel.loop.leave()
