"""From one client or sandbox to another by way of the API."""

import base64
import hashlib
import socket
import time
import urllib.parse

from client import AGENT_PORT
from model import check_row, Fail
from world import status_of

AREA = "API and tokens"


def expect(what, status, allowed):
    if status not in allowed:
        raise Fail(f"{what} answered {status}")


def without_key(world):
    """No API key, a wrong one, an empty one: 401 on every endpoint that knows sandboxes."""
    for headers in ({}, {"X-API-Key": ""}, {"X-API-Key": "e2b_" + "0" * 40}, {"Authorization": "Bearer x"}):
        for method, path in (("GET", "/sandboxes"), ("GET", "/v2/sandboxes"), ("POST", "/sandboxes"),
                             ("GET", f"/sandboxes/{world.main.id}"), ("DELETE", f"/sandboxes/{world.main.id}"),
                             ("POST", f"/sandboxes/{world.main.id}/timeout")):
            body = "{}" if method == "POST" else None
            status, _ = world.api.request(method, path, body, {**headers, "Content-Type": "application/json"})
            expect(f"{method} {path} with {headers}", status, (401,))
    status, _ = world.api.request("GET", f"/sandboxes/{world.main.id}", None, {"X-API-Key": world.api.key})
    expect("the control with the right key", status, (200,))
    return "the right key is served"


def agent_request(world, sandbox, method, path, token, body=None, kind="application/json", more=None):
    headers = {"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": AGENT_PORT, "Content-Type": kind, **(more or {})}
    if token is not None:
        headers["X-Access-Token"] = token
    return world.api.request(method, path, body, headers)[0]


def foreign_tokens(world):
    """The token of one sandbox, no token, a cut and a longer one, on another sandbox."""
    mine, other = world.main, world.neighbour
    if mine.token == other.token:
        raise Fail("both sandboxes have the same token")
    wrong = [None, "", mine.token, other.token[:-1], other.token + "0", other.token.upper() + " "]
    for token in wrong:
        for method, path, body in (("POST", "/process.Process/List", "{}"), ("POST", "/filesystem.Filesystem/ListDir", '{"path":"/"}'),
                                   ("GET", "/files?path=/etc/passwd", None), ("GET", "/envs", None), ("GET", "/metrics", None)):
            expect(f"{method} {path} with the token {token!r}", agent_request(world, other, method, path, token, body), (401,))
    expect("the control with the right token", agent_request(world, other, "POST", "/process.Process/List", other.token, "{}"), (200,))
    return "the right token is served"


def signature(path, operation, user, token, expiration=None):
    parts = [path, operation, user, token] + ([str(expiration)] if expiration is not None else [])
    return "v1_" + base64.b64encode(hashlib.sha256(":".join(parts).encode()).digest()).decode().rstrip("=")


def signed_urls(world):
    """A signed URL of one sandbox on another, for another path, another operation, and after its time."""
    mine, other = world.main, world.neighbour
    mine.upload("/tmp/signed", b"mine")
    other.upload("/tmp/signed", b"other")

    def get(sandbox, path, signed, expiration=None, method="GET"):
        query = {"path": path, "username": "user", "signature": signed}
        if expiration is not None:
            query["signature_expiration"] = expiration
        return agent_request(world, sandbox, method, "/files?" + urllib.parse.urlencode(query), None,
                             b"x" if method == "POST" else None, "application/octet-stream")

    good = signature("/tmp/signed", "read", "user", mine.token)
    expect("a signed URL on another sandbox", get(other, "/tmp/signed", good), (401,))
    expect("a signed URL for another path", get(mine, "/etc/passwd", good), (401,))
    expect("a signed URL for reading, used to write", get(mine, "/tmp/signed", good, method="POST"), (401,))
    past = int(time.time()) - 60
    expect("an expired URL", get(mine, "/tmp/signed", signature("/tmp/signed", "read", "user", mine.token, past), past), (401,))
    expect("an expired URL with a later date", get(mine, "/tmp/signed", signature("/tmp/signed", "read", "user", mine.token, past), past + 600), (401,))
    expect("the control", get(mine, "/tmp/signed", good), (200,))
    return "the right signature is served"


def private_endpoints(world):
    """The agent's internal endpoints through the public proxy, with the sandbox's own token."""
    sandbox = world.main
    for path in ("/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"):
        body = '{"accessToken":"attacker","envVars":{"X":"1"}}'
        for token in (sandbox.token, None):
            status = agent_request(world, sandbox, "POST", path, token, body)
            if status < 400:
                raise Fail(f"POST {path} through the proxy answered {status}")
    if sandbox.health() not in (200, 204):
        raise Fail("the agent does not answer any more")
    expect("the control, a public endpoint", agent_request(world, sandbox, "GET", "/envs", sandbox.token), (200,))
    return "a public endpoint is served"


def host_confusion(world):
    """Ids that are paths, ports that are not the agent's, host names that disagree with headers."""
    for sandbox_id in ("../" + world.main.id, world.main.id + "/../" + world.neighbour.id, "nonexistingsandbox", "", "%2e%2e", "a" * 5000):
        try:
            status, _ = world.api.request("GET", "/health", None, {"E2b-Sandbox-Id": sandbox_id, "E2b-Sandbox-Port": AGENT_PORT})
        except (OSError, ValueError):
            continue
        if status < 400:
            # An empty header may mean the server's own /health.
            if sandbox_id == "" and status in (200, 204):
                continue
            raise Fail(f"sandbox id {sandbox_id[:40]!r} answered {status}")
    for path in ("/sandboxes/..%2f..%2fetc%2fpasswd", "/sandboxes/%2e%2e", f"/sandboxes/{'a' * 3000}", "/sandboxes/A;B"):
        status, _ = world.api.request("GET", path, None, {"X-API-Key": world.api.key})
        if status < 400:
            raise Fail(f"GET {path[:60]} answered {status}")
    expect("the control", world.main.health(), (200, 204))
    return "the right id is served"


def raw_exchange(world, data, wait=5.0):
    """Sends bytes, reads until the server closes or is silent."""
    with socket.create_connection((world.api.host, world.api.port), timeout=wait) as connection:
        answer = b""
        try:
            connection.sendall(data)
            while True:
                part = connection.recv(65536)
                if not part:
                    break
                answer += part
        except OSError:
            pass
        return answer


def served_quickly(world, what):
    begun = time.monotonic()
    expect(f"a client during {what}", world.main.health(), (200, 204))
    if time.monotonic() - begun > 3:
        raise Fail(f"during {what} a client waited {time.monotonic() - begun:.1f} s")


def slow_clients(world):
    """Connections that never finish their request."""
    idle = []
    try:
        for number in range(300):
            connection = socket.create_connection((world.api.host, world.api.port), timeout=5)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"a" * (number % 7))
            idle.append(connection)
        for _ in range(5):
            served_quickly(world, "300 unfinished requests")
    finally:
        for connection in idle:
            connection.close()
    return f"{len(idle)} connections were open"


def header_bomb(world):
    """Endless headers, a huge header line, a huge target: an error or a closed connection, and no memory."""
    before = memory_of(world.server.pid)
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * 200_000,
                 b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"b" * 8_000_000,
                 b"GET /" + b"a" * 8_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"):
        answer = raw_exchange(world, data)
        if answer and not answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")):
            raise Fail(f"the server answered {answer[:60]!r}")
        served_quickly(world, "a header bomb")
    grown = memory_of(world.server.pid) - before
    if grown > 64:
        raise Fail(f"the server grew by {grown} MiB")
    ordinary = raw_exchange(world, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    if not ordinary.startswith(b"HTTP/1.1 2"):
        raise Fail(f"the control answered {ordinary[:60]!r}")
    return "an ordinary request is served"


def memory_of(pid):
    return int(status_of(pid)["VmRSS"].split()[0]) >> 10


def smuggling(world):
    """Requests whose end two parsers could see differently are refused; nothing hidden in them is answered."""
    hidden = f"GET /sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: {world.api.key}\r\n\r\n".encode()
    route = f"E2b-Sandbox-Id: {world.main.id}\r\nE2b-Sandbox-Port: {AGENT_PORT}\r\nX-Access-Token: {world.main.token}\r\n".encode()
    head = b"POST /process.Process/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + route
    cases = {
        "both lengths": head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
        "two lengths": head + b"Content-Length: 2\r\nContent-Length: %d\r\n\r\n{}" % (2 + len(hidden)) + hidden,
        "list of lengths": head + b"Content-Length: 2, %d\r\n\r\n{}" % (2 + len(hidden)) + hidden,
        "signed length": head + b"Content-Length: +2\r\n\r\n{}" + hidden,
        "odd coding": head + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
        "space before colon": head + b"Content-Length : 2\r\n\r\n{}" + hidden,
        "bad chunk size": head + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n" + hidden,
        "line feed in a header": head + b"X-A: b\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}" + hidden,
    }
    for name, data in cases.items():
        answer = raw_exchange(world, data, 3)
        if answer.count(b"HTTP/1.1 2") > 1 or world.main.id.encode() in answer:
            raise Fail(f"{name}: the hidden request was answered: {answer[:200]!r}")
    plain = head + b"Content-Length: 2\r\n\r\n{}" + hidden.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    answer = raw_exchange(world, plain, 5)
    if world.main.id.encode() not in answer:
        raise Fail(f"the control, two honest requests, answered {answer[:200]!r}")
    return "two honest requests in a row are served"


ROWS = [
    check_row("api_without_key", "use the control plane without a valid key", "keys stored hashed, compared in constant time", without_key),
    check_row("foreign_token", "use one sandbox's token on another", "token per sandbox, checked by its agent", foreign_tokens),
    check_row("foreign_signature", "use a signed URL elsewhere, for more, or later", "signature over path, operation, user, token, time", signed_urls),
    check_row("private_endpoints", "reach the agent's internal endpoints through the proxy", "the proxy refuses them", private_endpoints),
    check_row("slow_clients", "hold connections open with unfinished requests", "deadlines; connections are cheap and bounded",
              slow_clients),
    check_row("header_bomb", "endless headers and targets", "limits on header and target size", header_bomb),
    check_row("smuggling", "requests whose end is ambiguous", "strict parsing; such requests are refused", smuggling),
    check_row("id_confusion", "sandbox ids with paths, controls or absurd length", "ids are parsed, never used as paths", host_confusion),
]
