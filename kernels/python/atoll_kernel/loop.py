"""The one event loop of a kernel.

During a run it counts as running, so that a cell without `await` can create tasks; they make progress in cells that await and
between runs. It really runs only in `run()` (cells with `await`) and `serve_until()` (between runs).
"""

from .private import __builtins__  # isort: skip

import asyncio
import threading
from asyncio import events

_set_running = events._set_running_loop
_get_running = events._get_running_loop


class Loop:
    def __init__(self):
        self._loop = None
        self.cancelling = False  # an interrupt found the cell waiting; what it sees is a CancelledError
        self._make()
        self._patch_asyncio_run()

    def _make(self):
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def enter(self):
        """A run starts."""
        if self._loop.is_closed():
            self._make()
        _set_running(self._loop)

    def leave(self):
        _set_running(None)

    def run(self, coroutine):
        """The runner of IPython's cells with `await`."""
        loop = self._loop
        _set_running(None)
        try:
            task = loop.create_task(coroutine)
            try:
                return loop.run_until_complete(task)
            except BaseException:
                if not task.done():  # interrupted while it waited
                    self.cancelling = True
                    task.cancel()
                    loop.run_until_complete(asyncio.wait([task], timeout=2))
                raise
        finally:
            self.cancelling = False
            if not loop.is_closed():
                _set_running(loop)

    def idle(self):
        """Nothing can happen in the loop by itself."""
        loop = self._loop
        try:
            return not loop._ready and not loop._scheduled and len(loop._selector.get_map()) <= 1 and threading.active_count() <= 1
        except Exception:
            return loop.is_closed()

    def serve_until(self, descriptor):
        """Runs the loop until `descriptor` can be read."""
        loop = self._loop
        try:
            loop.add_reader(descriptor, loop.stop)
            try:
                loop.run_forever()
            finally:
                loop.remove_reader(descriptor)
        except BaseException:
            pass  # SystemExit and the like from a task: the kernel goes on

    def after_fork_in_child(self):
        # The selector is shared with the parent: leave it alone, have a new loop if one is asked for.
        _set_running(None)
        asyncio.set_event_loop(None)

    def _patch_asyncio_run(self):
        """asyncio.run() works in a cell without `await` as it does in a script."""
        original = asyncio.run

        def run(main, *, debug=None, loop_factory=None):
            ours = _get_running()
            if ours is not self._loop or ours.is_running():
                return original(main, debug=debug, loop_factory=loop_factory)
            _set_running(None)
            try:
                return original(main, debug=debug, loop_factory=loop_factory)
            finally:
                asyncio.set_event_loop(ours)
                _set_running(ours)

        run.__doc__ = original.__doc__
        asyncio.run = asyncio.runners.run = run
