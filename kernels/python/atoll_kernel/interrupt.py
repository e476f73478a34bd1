"""SIGINT: a KeyboardInterrupt in the main thread, during a run only, and never in the middle of a line on the wire."""

from .private import __builtins__  # isort: skip

import signal
from _thread import get_ident

_set = signal.signal
_get = signal.getsignal
_SIGINT = signal.SIGINT


class Interrupts:
    """`held` and `armed` are written by the main thread alone, which is also where Python runs the handler."""

    def __init__(self):
        self.main = get_ident()
        self.armed = False  # a run is going on
        self.held = 0  # depth of sections that must not be cut in two
        self.waiting = False  # a signal came in such a section

    def install(self):
        _set(_SIGINT, self.handler)

    def ensure(self):
        """A cell may have installed a handler of its own; it lasts as long as the run."""
        if _get(_SIGINT) != self.handler:
            _set(_SIGINT, self.handler)

    def handler(self, signum, frame):
        if not self.armed:
            return
        if self.held:
            self.waiting = True
            return
        raise KeyboardInterrupt

    def arm(self):
        self.waiting = False
        self.armed = True

    def disarm(self):
        self.armed = False
        self.waiting = False

    def release(self):
        """End of a held section of the main thread."""
        self.held -= 1
        if self.waiting and not self.held and self.armed:
            self.waiting = False
            raise KeyboardInterrupt
