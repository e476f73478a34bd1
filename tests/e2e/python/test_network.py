"""What a sandbox reaches, and who reaches it. The internet is the one of harness/world.py: 1.1.1.1 answers 301, 8.8.8.8 answers
302, hosts by name answer what they were asked."""

import json
import os
from pathlib import Path

from e2b import ALL_TRAFFIC

from support import row, settle, until, visit

EVERYTHING = [ALL_TRAFFIC]
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = "".join(f"{k}: {v}\\n" for k, v in self.headers.items()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"""


async def status(sbx, url):
    """The status of a request from inside; 0 when the connection fails."""
    if not await settle(sbx.files.exists("/home/user/ca.pem")):
        await settle(sbx.files.write("/home/user/ca.pem", Path(os.environ["E2E_WORLD_CA"]).read_text()))
    result = await settle(sbx.commands.run(
        f"curl -s -o /dev/null -w '%{{http_code}}' --connect-timeout 3 --max-time 5 --cacert /home/user/ca.pem {url} || true"))
    return int(result.stdout)


async def reaches(sbx, expected):
    for url, code in expected.items():
        seen = await status(sbx, url)
        assert seen == code, f"{url}: {seen} instead of {code}"


async def serve(sbx, port):
    await settle(sbx.files.write("server.py", SERVER))
    await settle(sbx.commands.run(f"python3 server.py {port}", background=True, timeout=0))

    async def up():
        return (await settle(sbx.commands.run(f"curl -s localhost:{port} >/dev/null && echo up || true"))).stdout

    await until("the server", up)


# --- out


@row("network/out: internet access by default")
async def test_default(case):
    await reaches(case.sbx, {
        "https://connectivitycheck.gstatic.com/generate_204": 204, "https://1.1.1.1": 301, "https://8.8.8.8": 302,
        "http://other.example.org/": 200})


@row("network/out: internet access enabled", allow_internet_access=True)
async def test_enabled(case):
    await reaches(case.sbx, {"https://connectivitycheck.gstatic.com/generate_204": 204})


@row("network/out: internet access disabled", allow_internet_access=False)
async def test_disabled(case):
    await reaches(case.sbx, {
        "https://connectivitycheck.gstatic.com/generate_204": 0, "https://1.1.1.1": 0, "http://203.0.113.20/": 0})
    assert (await settle(case.sbx.commands.run("echo inside"))).stdout == "inside\n"


@row("network/out: allow one address, deny the rest", network={"deny_out": EVERYTHING, "allow_out": ["1.1.1.1"]})
async def test_allow_one(case):
    await reaches(case.sbx, {"https://1.1.1.1": 301, "https://8.8.8.8": 0})


@row("network/out: deny one address", network={"deny_out": ["8.8.8.8"]})
async def test_deny_one(case):
    await reaches(case.sbx, {"https://8.8.8.8": 0, "https://1.1.1.1": 301})


@row("network/out: deny a block", network={"deny_out": ["203.0.113.0/28"]})
async def test_deny_block(case):
    await reaches(case.sbx, {"http://203.0.113.4/generate_204": 0, "http://203.0.113.20/": 200})


@row("network/out: deny all traffic", network={"deny_out": EVERYTHING})
async def test_deny_all(case):
    await reaches(case.sbx, {"https://1.1.1.1": 0, "https://8.8.8.8": 0})
    assert await settle(case.sbx.is_running()) is True


@row("network/out: allow beats deny", network={"deny_out": EVERYTHING, "allow_out": ["1.1.1.1", "8.8.8.8"]})
async def test_allow_beats_deny(case):
    await reaches(case.sbx, {"https://1.1.1.1": 301, "https://8.8.8.8": 302, "http://203.0.113.20/": 0})


@row("network/out: an update denies what was reachable")
async def test_update(case):
    await reaches(case.sbx, {"https://8.8.8.8": 302})
    await settle(case.sbx.update_network({"deny_out": ["8.8.8.8"]}))
    await reaches(case.sbx, {"https://8.8.8.8": 0, "https://1.1.1.1": 301})


@row("network/out: an update replaces all rules", network={"deny_out": ["8.8.8.8"]})
async def test_update_clears(case):
    await reaches(case.sbx, {"https://8.8.8.8": 0})
    await settle(case.sbx.update_network({}))
    await reaches(case.sbx, {"https://8.8.8.8": 302, "https://1.1.1.1": 301})
    await settle(case.flavor.Sandbox.update_network(case.sbx.sandbox_id, {"allow_internet_access": False}))
    await reaches(case.sbx, {"https://8.8.8.8": 0, "https://1.1.1.1": 0})


@row("network/out: rules outlive a pause", network={"deny_out": ["8.8.8.8"]})
async def test_rules_outlive_pause(case):
    for keep_memory in (True, False):
        await settle(case.sbx.pause(keep_memory=keep_memory))
        await settle(case.sbx.connect())
        await reaches(case.sbx, {"https://8.8.8.8": 0, "https://1.1.1.1": 301})


# --- names


@row("network/names: only one name", network={"deny_out": EVERYTHING, "allow_out": ["allowed.example.com"]})
async def test_one_name(case):
    await reaches(case.sbx, {
        "https://allowed.example.com/": 200, "http://allowed.example.com/": 200, "https://other.example.org/": 0,
        "https://1.1.1.1": 0})


@row("network/names: wildcard", network={"deny_out": EVERYTHING, "allow_out": ["*.example.com"]})
async def test_wildcard(case):
    await reaches(case.sbx, {
        "https://allowed.example.com/": 200, "https://deep.below.example.com/": 200, "https://example.com/": 0,
        "https://other.example.org/": 0})


@row("network/names: names and addresses together",
     network={"deny_out": EVERYTHING, "allow_out": ["allowed.example.com", "8.8.8.8"]})
async def test_names_and_addresses(case):
    await reaches(case.sbx, {"https://allowed.example.com/": 200, "https://8.8.8.8": 302, "https://1.1.1.1": 0})


# --- transform


@row("network/transform: a header is injected", sandbox=False)
async def test_transform(case):
    sidecar = await case.flavor.create(template="httpbin", timeout=60)
    case.defer(sidecar.kill)

    async def up():
        return (await visit(sidecar, 8080, "/headers"))[0] == 200

    await until("httpbin", up)
    host, token = sidecar.get_host(8080), "a-secret-of-the-test"
    sbx = await case.flavor.create(network={
        "allow_out": lambda context: list(context.rules.keys()),
        "deny_out": EVERYTHING,
        "rules": {host: [{"transform": {"headers": {"X-Test-Token": token}}}]},
    })
    case.defer(sbx.kill)
    for options in ("", '-H "X-Test-Token: forged"'):
        result = await settle(sbx.commands.run(f"curl -sS --max-time 10 {options} https://{host}/headers"))
        assert json.loads(result.stdout)["headers"]["X-Test-Token"] == token


@row("network/transform: over plain HTTP and to one host only",
     network={"rules": {"allowed.example.com": [{"transform": {"headers": {"Authorization": "Bearer t0ken"}}}]}})
async def test_transform_plain(case):
    async def headers(host):
        result = await settle(case.sbx.commands.run(f"curl -sS --max-time 10 http://{host}/"))
        return {name.lower(): value for name, value in json.loads(result.stdout)["headers"]}

    assert (await headers("allowed.example.com")).get("authorization") == "Bearer t0ken"
    assert "authorization" not in await headers("other.example.org")


# --- in


@row("network/in: private traffic needs the token", network={"allow_public_traffic": False})
async def test_private(case):
    await serve(case.sbx, 8080)
    assert case.sbx.traffic_access_token
    status_, _, body = await visit(case.sbx, 8080)
    assert status_ == 403 and "Token header 'e2b-traffic-access-token' is missing" in json.loads(body)["message"]
    status_, _, body = await visit(case.sbx, 8080, headers={"e2b-traffic-access-token": "wrong"})
    assert status_ == 403 and "is invalid" in json.loads(body)["message"]
    assert (await visit(case.sbx, 8080, headers={"e2b-traffic-access-token": case.sbx.traffic_access_token}))[0] == 200
    again = await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id))
    assert again.traffic_access_token == case.sbx.traffic_access_token


@row("network/in: public traffic needs no token", network={"allow_public_traffic": True})
async def test_public(case):
    await serve(case.sbx, 8080)
    assert not case.sbx.traffic_access_token
    assert (await visit(case.sbx, 8080))[0] == 200


@row("network/in: the host is masked", network={"mask_request_host": "custom-host.example.com:${PORT}"})
async def test_mask(case):
    await serve(case.sbx, 8080)
    text = (await visit(case.sbx, 8080))[2].decode()
    assert "Host: custom-host.example.com:8080\n" in text
    assert f"x-forwarded-host: {case.sbx.get_host(8080)}" in text.lower()


@row("network/in: the host is kept without a mask")
async def test_no_mask(case):
    await serve(case.sbx, 8080)
    text = (await visit(case.sbx, 8080))[2].decode()
    assert f"host: {case.sbx.get_host(8080)}\n" in text.lower()
    assert "x-forwarded" not in text.lower()
