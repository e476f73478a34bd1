"""From one client or sandbox to another by way of the API."""

import base64
import hashlib
import time
import urllib.parse

from client import AGENT_PORT
from model import check_row, Fail

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
    for sandbox_id in ("../" + world.main.id, world.main.id + "/../" + world.neighbour.id, "nonexistingsandbox", "", "%2e%2e", "a" * 5000,
                       world.main.id + "\t"):
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


ROWS = [
    check_row("api_without_key", "use the control plane without a valid key", "keys stored hashed, compared in constant time", without_key),
    check_row("foreign_token", "use one sandbox's token on another", "token per sandbox, checked by its agent", foreign_tokens),
    check_row("foreign_signature", "use a signed URL elsewhere, for more, or later", "signature over path, operation, user, token, time", signed_urls),
    check_row("private_endpoints", "reach the agent's internal endpoints through the proxy", "the proxy refuses them", private_endpoints),
    check_row("id_confusion", "sandbox ids with paths, controls or absurd length", "ids are parsed, never used as paths", host_confusion),
]
