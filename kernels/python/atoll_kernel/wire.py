"""The control socket: lines of JSON from and to the agent."""

from .private import __builtins__  # isort: skip

import socket

from . import jsontext


class Closed(Exception):
    """The agent is gone."""


class Wire:
    def __init__(self, sock):
        self._sock = sock
        self._recv = sock.recv
        self._send = sock.send
        self._have = bytearray()
        self._closed = False

    @classmethod
    def of_descriptor(cls, descriptor):
        sock = socket.socket(fileno=descriptor)
        sock.setblocking(True)
        sock.set_inheritable(False)
        return cls(sock)

    def fileno(self):
        return self._sock.fileno()

    def has_line(self):
        return b"\n" in self._have

    def read_line(self):
        """The next line without its end; None when the agent is gone."""
        have = self._have
        searched = 0
        while True:
            end = have.find(b"\n", searched)
            if end >= 0:
                line = bytes(have[:end])
                del have[: end + 1]
                return line
            searched = len(have)
            try:
                got = self._recv(262144)
            except OSError:
                return None
            if not got:
                return None
            have += got

    def send(self, line):
        """One whole line. Blocks while the agent does not read; the caller keeps interrupts and other threads away."""
        if self._closed:
            return
        rest = memoryview((line + "\n").encode("ascii"))
        try:
            while rest:
                rest = rest[self._send(rest) :]
        except OSError:
            self._closed = True

    def close(self):
        self._closed = True
        self._sock.close()


encode = jsontext.encode
