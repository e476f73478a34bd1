"""A timer that a thread can wait for beside descriptors. Setting it wakes nobody until it has run out."""

from .private import __builtins__  # isort: skip

import os
import time

if hasattr(os, "timerfd_create"):
    _create, _set, _read = os.timerfd_create, os.timerfd_settime, os.read

    class Alarm:
        def __init__(self):
            self.descriptor = _create(time.CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
            self.timeout = None  # for poll()

        def set(self, seconds):
            _set(self.descriptor, initial=seconds)

        def cancel(self):
            _set(self.descriptor, initial=0)

        def fired(self):
            try:
                return bool(_read(self.descriptor, 8))
            except BlockingIOError:
                return False

else:
    # Before Python 3.13: the waiting thread is woken to learn of the deadline.
    _now = time.monotonic

    class Alarm:
        def __init__(self):
            self.descriptor, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._at = None

        @property
        def timeout(self):
            at = self._at
            return None if at is None else max(0.0, (at - _now()) * 1000)

        def set(self, seconds, _write=os.write):
            self._at = _now() + seconds
            try:
                _write(self._wake, b"x")
            except BlockingIOError:
                pass

        def cancel(self):
            self._at = None

        def fired(self, _read=os.read):
            try:
                _read(self.descriptor, 4096)
            except BlockingIOError:
                pass
            at = self._at
            if at is None or at > _now():
                return False
            self._at = None
            return True
