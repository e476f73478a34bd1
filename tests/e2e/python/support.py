"""Shared ground of the Python suites: one body per row of ../rows.tsv, run for both flavours of the SDK.

A body is a coroutine. Calls of either flavour go through `settle`, which awaits what the async flavour returns and
passes on what the sync one returns, so `await settle(sbx.commands.run("true"))` reads the same for both. Where the
flavours differ in kind (callbacks against iteration, polled against streamed watches), rows have a body of their own.

In debug mode (E2B_DEBUG=true) the SDK talks to one bare agent, so all cases share one machine: every case works under
names of its own and ends what it started.
"""

import asyncio
import inspect
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from pathlib import Path

import e2b
import pytest

DEBUG = os.environ.get("E2B_DEBUG") == "true"
# How the SDK finds the server: by domain with TLS, or by two plain URLs.
OVER_TLS = not DEBUG and not os.environ.get("E2B_API_URL")
# Set when a release other than the newest is tested.
OLD = os.environ.get("E2E_OLD") == "1"
TIME_SCALE = float(os.environ.get("E2E_TIME_SCALE", "1"))
HOME = "/home/user"
# Older releases have one name for both.
FileNotFoundException = getattr(e2b, "FileNotFoundException", e2b.NotFoundException)
SandboxNotFoundException = getattr(e2b, "SandboxNotFoundException", e2b.NotFoundException)


class Flavor:
    def __init__(self, name, sandbox, template="base"):
        self.name = name
        self.Sandbox = sandbox
        self.template = template
        self.is_async = issubclass(sandbox, e2b.AsyncSandbox)

    async def create(self, **options):
        options.setdefault("template", self.template)
        return await settle(self.Sandbox.create(**options))


FLAVORS = {"sync": Flavor("sync", e2b.Sandbox), "async": Flavor("async", e2b.AsyncSandbox)}


async def settle(value):
    return await value if inspect.isawaitable(value) else value


def unique(prefix):
    return f"{prefix}-{secrets.token_hex(6)}"


async def until(what, probe, limit=10.0):
    """Waits until `probe()` is truthy, at most `limit` seconds."""
    end = time.monotonic() + limit * TIME_SCALE
    while True:
        value = await settle(probe())
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"gave up waiting for {what}")
        await asyncio.sleep(0.02)


def route(sbx, port=49983):
    """Headers that lead a hand-made request to a port of the sandbox; over a domain the host says it all."""
    return {} if OVER_TLS else {"E2b-Sandbox-Id": sbx.sandbox_id, "E2b-Sandbox-Port": str(port)}


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def fetch(url, headers=(), body=None, method=None, limit=15.0):
    """One request with the standard library: (status, headers, body). It speaks HTTP/1.1 and verifies certificates."""
    made = urllib.request.Request(url, data=body, headers=dict(headers), method=method)
    try:
        with urllib.request.build_opener(NoRedirect()).open(made, timeout=limit * TIME_SCALE) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


async def visit(sbx, port, path="/", headers=(), **options):
    """A request to a server inside the sandbox."""
    base = f"https://{sbx.get_host(port)}" if OVER_TLS else os.environ["E2B_SANDBOX_URL"]
    return await asyncio.to_thread(fetch, base + path, {**route(sbx, port), **dict(headers)}, **options)


async def control(sbx):
    """What the control plane says of the sandbox, also what the SDK has no name for."""
    api = f"https://api.{os.environ['E2B_DOMAIN']}" if OVER_TLS else os.environ["E2B_API_URL"]
    status, _, body = await asyncio.to_thread(fetch, f"{api}/sandboxes/{sbx.sandbox_id}", {"X-API-Key": os.environ["E2B_API_KEY"]})
    assert status == 200, body
    return json.loads(body)


class Case:
    """What a body gets: the sandbox, the flavour, and `defer` for cleanups that run before the sandbox ends."""

    def __init__(self, flavor):
        self.flavor = flavor
        self.sbx = None
        self.cleanups = []

    def defer(self, call):
        self.cleanups.append(call)

    async def close(self):
        for call in reversed(self.cleanups):
            try:
                await settle(call())
            except Exception:
                pass


ROWS = {}
for line in Path(__file__).resolve().parents[1].joinpath("rows.tsv").read_text().splitlines():
    if line and not line.startswith("#"):
        name, _, places = line.split("\t")
        ROWS[name] = places


def applies(row_id):
    """Does the row hold where we are? rows.tsv says: T over a domain with TLS, P by plain URLs, D debug mode, O old releases (J: of JavaScript, Y: of Python)."""
    places = ROWS[row_id]
    return ("D" if DEBUG else "T" if OVER_TLS else "P") in places and (not OLD or "O" in places or "Y" in places)


def row(row_id, flavors=("sync", "async"), sandbox=True, kinds=FLAVORS, seconds=None, **create):
    """Declares the body of one row for `flavors`; `kinds` says what their sandboxes are."""

    def declare(body):
        @pytest.mark.row(row_id, seconds=seconds)
        @pytest.mark.skipif(not applies(row_id), reason="does not apply here")
        @pytest.mark.parametrize("flavor", flavors)
        def case(flavor):
            async def main():
                one = Case(kinds[flavor])
                try:
                    if sandbox:
                        one.sbx = await one.flavor.create(**{"metadata": {"e2e": row_id}, **create})
                        if not DEBUG:
                            one.defer(lambda: one.sbx.kill())
                    await body(one)
                except BaseException as error:
                    if one.sbx is not None and hasattr(error, "add_note"):
                        error.add_note(f"sandbox {one.sbx.sandbox_id}")
                    raise
                finally:
                    await one.close()

            asyncio.run(main())

        case.__name__ = body.__name__
        case.__doc__ = body.__doc__
        return case

    return declare
