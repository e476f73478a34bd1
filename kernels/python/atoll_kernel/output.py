"""Everything a run prints, in order, as chunks on the wire.

Two ways lead here: `sys.stdout`/`sys.stderr` (Stream, text in memory) and the descriptors 1 and 2 (pipes: child processes, C
libraries, os.write). Both end in one list per channel, which is flushed 0.2 s after its first text, by `flush()`, at 64 Ki
characters, and before any result or error.

One thread, the pump, waits for the pipes and for the alarm; the main thread empties the pipes too, before it adds text, so
that the order of both ways is kept. The lock is held while a chunk is sent: when the agent does not read, writers wait.
Between runs everything is thrown away. In a process that a cell forked, streams write straight to the descriptors.
"""

from .private import __builtins__  # isort: skip

import codecs
import io
import os
import select
import signal
import time
from _thread import RLock, start_new_thread
from datetime import datetime, timezone

from . import jsontext
from .alarm import Alarm

CHUNK = 65536  # characters
DELAY = 0.2  # seconds
LOOK = 20e-6  # seconds between looks at the pipes

_clock = time.perf_counter
_now = datetime.now
_utc = timezone.utc
_read, _write, _dup2, _fstat = os.read, os.write, os.dup2, os.fstat
_string = jsontext.string


def timestamp():
    return _now(_utc).isoformat(timespec="microseconds")


class Channel:
    """stdout or stderr: what waits to be sent, and the pipe behind its descriptor."""

    def __init__(self, name, descriptor):
        self.descriptor = descriptor
        self.head = '{"type":"' + name + '","text":'
        self.parts = []
        self.size = 0
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.source, sink = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.source, False)
        self.sink = sink  # kept: the pipe has never "no writer", and a closed descriptor can be put back
        _dup2(sink, descriptor)

    def restore(self):
        try:
            _fstat(self.descriptor)
        except OSError:
            _dup2(self.sink, self.descriptor)


class Output:
    def __init__(self, wire, interrupts):
        self.live = False
        self.forked = False
        self._wire = wire
        self._interrupts = interrupts
        self._lock = RLock()
        self._sending = False
        self._pending = False  # the alarm is set
        self._looked = 0.0
        self.stdout = Channel("stdout", 1)
        self.stderr = Channel("stderr", 2)
        self._channels = (self.stdout, self.stderr)
        self._by_source = {c.source: c for c in self._channels}
        self._alarm = Alarm()
        self._poll = select.poll()
        for channel in self._channels:
            self._poll.register(channel.source, select.POLLIN)
        start_new_thread(self._pump, ())

    # --- for the runner

    def begin(self):
        """A run starts: what came before is no part of it."""
        for channel in self._channels:
            channel.restore()
        with self._lock:
            self._collect()
            for channel in self._channels:
                channel.parts, channel.size = [], 0
            self.live = True

    def end(self):
        """Sends what is left; later text is dropped. Called with interrupts disarmed."""
        with self._lock:
            self._collect()
            for channel in self._channels:
                rest = channel.decode(b"", True)
                if rest:
                    self._add(channel, rest)
            self._flush_all()
            self.live = False

    def line(self, line):
        """A line that is not a chunk: output so far goes first."""
        held = self._interrupts.hold()
        try:
            with self._lock:
                if self.live:
                    self._collect()
                    self._flush_all()
                    self._transmit(line)
        finally:
            if held:
                self._interrupts.release()

    def bare_line(self, line):
        with self._lock:
            self._transmit(line)

    # --- for streams

    def write(self, channel, text):
        held = self._interrupts.hold()
        try:
            with self._lock:
                if not self.live:
                    return
                now = _clock()
                if now - self._looked > LOOK:
                    self._collect()
                    self._looked = now
                if len(text) > CHUNK:
                    for start in range(0, len(text), CHUNK):
                        self._add(channel, text[start : start + CHUNK])
                else:
                    self._add(channel, text)
        finally:
            if held:
                self._interrupts.release()

    def flush(self, channel):
        held = self._interrupts.hold()
        try:
            with self._lock:
                if self.live:
                    self._collect()
                    self._flush(channel)
        finally:
            if held:
                self._interrupts.release()

    # --- inside

    def _add(self, channel, text):
        if not self.live:
            return
        channel.parts.append(text)
        channel.size += len(text)
        if not self._pending:
            self._pending = True
            self._alarm.set(DELAY)
        if channel.size >= CHUNK:
            self._flush(channel)

    def _flush(self, channel):
        # A finaliser may print while this thread sends: its text stays in the list.
        if not channel.parts or self._sending:
            return
        text = "".join(channel.parts)
        channel.parts, channel.size = [], 0
        if self._pending and not self.stdout.parts and not self.stderr.parts:
            self._pending = False
            self._alarm.cancel()
        tail = ',"timestamp":"' + timestamp() + '"}'
        for start in range(0, len(text), CHUNK):
            self._transmit(channel.head + _string(text[start : start + CHUNK]) + tail)

    def _flush_all(self):
        self._flush(self.stdout)
        self._flush(self.stderr)

    def _transmit(self, line):
        self._sending = True
        try:
            self._wire.send(line)
        finally:
            self._sending = False

    def _collect(self):
        """Takes what is in the pipes, without waiting. Two reads empty a pipe; a child that goes on writing is left to the pump."""
        for _ in range(2):
            ready = self._poll.poll(0)
            if not ready:
                return
            for source, _ in ready:
                channel = self._by_source[source]
                try:
                    got = _read(source, CHUNK)
                except OSError:
                    continue
                text = channel.decode(got)
                if text:
                    self._add(channel, text)

    def _pump(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        poll = select.poll()
        for descriptor in (self.stdout.source, self.stderr.source, self._alarm.descriptor):
            poll.register(descriptor, select.POLLIN)
        while True:
            for _, event in poll.poll(self._alarm.timeout):
                if event & select.POLLNVAL:
                    return  # a cell closed it; the main thread still flushes
            with self._lock:
                if self._alarm.fired() and self._pending:
                    self._pending = False
                    self._flush_all()
                self._collect()

    def after_fork_in_child(self):
        """In a child that a cell forked: no control socket, no pump, no lock that another thread may hold."""
        self.forked = True
        self._lock = RLock()
        self._wire.close()
        for channel in self._channels:
            channel.parts, channel.size = [], 0


def write_all(descriptor, data):
    view = memoryview(data)
    while view:
        view = view[_write(descriptor, view) :]


class Stream(io.TextIOBase):
    """`sys.stdout` and `sys.stderr`. Closing has no effect."""

    def __init__(self, output, channel, name):
        self._output = output
        self._channel = channel
        self._buffer = Binary(self)
        self.name = name
        self.mode = "w"

    encoding = "UTF-8"
    errors = "replace"
    newlines = None
    line_buffering = False
    write_through = False

    @property
    def buffer(self):
        return self._buffer

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        output = self._output
        if output.forked:
            write_all(self._channel.descriptor, text.encode("utf-8", "replace"))
        elif text:
            output.write(self._channel, text)
        return len(text)

    def flush(self):
        if not self._output.forked:
            self._output.flush(self._channel)

    def close(self):
        pass

    def fileno(self):
        return self._channel.descriptor

    def isatty(self):
        return False

    def writable(self):
        return True

    def reconfigure(self, **options):
        pass

    def __reduce__(self):
        raise TypeError(f"cannot pickle '{type(self).__name__}' object")


class Binary(io.BufferedIOBase):
    """`sys.stdout.buffer`."""

    def __init__(self, stream):
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.raw = self
        self.name = stream._channel.descriptor
        self.mode = "wb"

    def write(self, data):
        stream = self._stream
        with memoryview(data) as view:
            size = view.nbytes
            if stream._output.forked:
                write_all(stream._channel.descriptor, view.cast("B"))
            else:
                stream.write(self._decode(view))
        return size

    def flush(self):
        self._stream.flush()

    def close(self):
        pass

    def fileno(self):
        return self._stream.fileno()

    def isatty(self):
        return False

    def writable(self):
        return True
