"""An agent that turned against the server: everything it says is untrusted input."""

import contextlib
import http.client
import os
import shutil
import time

from client import ApiError
from model import check_row, Fail
from world import read_bytes, rss_of, Server

AREA = "Hostile agents"

MODES = {
    "garbage": "bytes that are no HTTP",
    "headers": "a head without end",
    "continues": "interim answers without end",
    "body": "a body without end where a log is asked for",
    "two": "a second answer that nobody asked for",
    "length": "contradicting lengths",
    "nesting": "JSON nested without end",
}
GROWTH = 96 << 20


@contextlib.contextmanager
def hostile_server(world, mode):
    """The real server and warden with another agent beside them."""
    directory = os.path.join(world.work, f"hostile-{mode}")
    home = os.path.join(os.path.dirname(world.home), f"security-hostile")
    os.makedirs(directory)
    for name in ("atoll", "atoll-warden"):
        shutil.copy2(os.path.join(world.build, "bin", name), directory)
    os.symlink(os.path.join(world.build, "lib", "kernels"), os.path.join(directory, "kernels"))
    program = read_bytes(world.payload("hostile_agent"))
    old = b"HOSTILE-MODE:garbage".ljust(40)
    if program.count(old) != 1:
        raise Fail("the hostile agent has no place for its mode")
    with open(os.path.join(directory, "atoll-agent"), "wb") as file:
        file.write(program.replace(old, f"HOSTILE-MODE:{mode}".encode().ljust(40)))
    os.chmod(os.path.join(directory, "atoll-agent"), 0o755)
    server = Server(world.build, home, os.path.join(directory, "server.log"), programs=directory)
    try:
        yield server
        if server.ended():
            raise Fail(f"the server ended:\n{server.log()[-800:]}")
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def attempt(server, path, sandbox, limit=20):
    """An answer of any kind, in time; what it was."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection(server.api.host, server.api.port, timeout=limit)
    body = b""
    try:
        connection.request("GET", path, None, sandbox.headers())
        response = connection.getresponse()
        said = str(response.status)
        body = response.read(1 << 20)  # what a sandbox sends without end, its client may stop reading
    except (OSError, ValueError, http.client.HTTPException) as error:  # a broken connection is an answer too
        said = type(error).__name__
    finally:
        connection.close()
    if time.monotonic() - begun >= limit:
        raise Fail(f"GET {path} was not answered within {limit} s")
    if b"forgeries" in body or b"stolen" in body:
        raise Fail("a forged second answer reached a client")
    return said


def attack(mode):
    def run(world):
        with hostile_server(world, mode) as server:
            sandbox = server.api.create()
            before = rss_of(server.pid)
            said = [attempt(server, "/health", sandbox), attempt(server, "/files?path=/etc/passwd", sandbox),
                    attempt(server, "/health", sandbox)]
            begun = time.monotonic()
            for path in (f"/sandboxes/{sandbox.id}/logs", f"/sandboxes/{sandbox.id}/metrics", f"/sandboxes/{sandbox.id}"):
                status, _ = server.api.request("GET", path, None, {"X-API-Key": server.api.key}, timeout=30)
                if status not in (200, 404, 502, 503, 504, 500):
                    raise Fail(f"GET {path} answered {status}")
                if path.endswith(sandbox.id) and status != 200:
                    raise Fail(f"the sandbox's info answered {status}")
            if time.monotonic() - begun > 25:
                raise Fail("the control plane waited for a hostile agent")
            grown = rss_of(server.pid) - before
            if grown > GROWTH:
                raise Fail(f"the server grew by {grown >> 20} MiB")
            sandbox.kill()
            try:
                server.api.info(sandbox.id)
                raise Fail("the sandbox is still there after its kill")
            except ApiError as error:
                if error.status != 404:
                    raise
        if mode != "two" and "200" in said[:1] and mode in ("garbage", "headers", "continues", "length"):
            raise Fail(f"such an answer was passed on as good: {said}")
        return f"the same server serves honest agents; clients saw {', '.join(said)}"

    return run


def refuses_init(world):
    with hostile_server(world, "refuses") as server:
        try:
            server.api.create()
            raise Fail("a sandbox whose agent refused was given to a client")
        except ApiError as error:
            if error.status not in (500, 502, 503, 504):
                raise Fail(f"create answered {error.status}")
        if server.api.call("GET", "/v2/sandboxes"):
            raise Fail("the sandbox is listed")
    return "honest agents are given out"


ROWS = [check_row(f"hostile_agent_{mode}", f"an agent answers with {what}", "bounded, strict reading; the sandbox alone suffers", attack(mode))
        for mode, what in MODES.items()]
ROWS.append(check_row("hostile_agent_refuses", "an agent answers its first call with garbage", "fail closed: the sandbox is never given out",
                      refuses_init))
