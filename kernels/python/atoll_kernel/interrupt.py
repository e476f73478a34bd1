"""SIGINT: a KeyboardInterrupt in the main thread, during a run only, and never in the middle of a line on the wire.

The agent signals the kernel alone; what a cell has started in the kernel's process group hears of it too, as at a terminal.
"""

from .private import __builtins__  # isort: skip

import os
import signal
from _thread import get_ident

_set = signal.signal
_get = signal.getsignal
_SIGINT = signal.SIGINT
_SIG_IGN = signal.SIG_IGN
_getpid, _getpgrp, _killpg = os.getpid, os.getpgrp, os.killpg


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
        self._pass_on()
        if self.held:
            self.waiting = True
            return
        raise KeyboardInterrupt

    def _pass_on(self):
        leader = _getpid()
        if _getpgrp() == leader:
            _set(_SIGINT, _SIG_IGN)  # a signal of our own to ourselves is dropped where it is made
            try:
                _killpg(leader, _SIGINT)
            except OSError:
                pass
            _set(_SIGINT, self.handler)

    def arm(self):
        self.waiting = False
        self.armed = True

    def disarm(self):
        self.armed = False
        self.waiting = False

    def hold(self):
        """Begins a held section, if this is the main thread; True: `release` ends it."""
        if get_ident() != self.main:
            return False
        self.held += 1
        return True

    def release(self):
        """End of a held section of the main thread."""
        self.held -= 1
        if self.waiting and not self.held and self.armed:
            self.waiting = False
            raise KeyboardInterrupt
