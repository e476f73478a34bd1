"""Shared ground of the Python suites: one body per row of ../rows.tsv, run for both flavours of the SDK.

A body is a coroutine. Calls of either flavour go through `settle`, which awaits what the async flavour returns and
passes on what the sync one returns, so `await settle(sbx.commands.run("true"))` reads the same for both. Where the
flavours differ in kind (callbacks against iteration, polled against streamed watches), rows have a body of their own.

In debug mode (E2B_DEBUG=true) the SDK talks to one bare agent, so all cases share one machine: every case works under
names of its own and ends what it started.
"""

import asyncio
import inspect
import os
import secrets
import time

import e2b
import pytest

DEBUG = os.environ.get("E2B_DEBUG") == "true"
TIME_SCALE = float(os.environ.get("E2E_TIME_SCALE", "1"))
HOME = "/home/user"


class Flavor:
    def __init__(self, name, sandbox):
        self.name = name
        self.Sandbox = sandbox
        self.is_async = sandbox is e2b.AsyncSandbox

    async def create(self, **options):
        options.setdefault("template", "base")
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


def row(row_id, flavors=("sync", "async"), debug=False, sandbox=True, **create):
    """Declares the body of one row for `flavors`; `debug` marks rows that also hold against a bare agent."""

    def declare(body):
        @pytest.mark.row(row_id)
        @pytest.mark.skipif(DEBUG and not debug, reason="needs a server")
        @pytest.mark.parametrize("flavor", flavors)
        def case(flavor):
            async def main():
                one = Case(FLAVORS[flavor])
                try:
                    if sandbox:
                        one.sbx = await one.flavor.create(**{"metadata": {"e2e": row_id}, **create})
                        if not DEBUG:
                            one.defer(lambda: one.sbx.kill())
                    await body(one)
                finally:
                    await one.close()

            asyncio.run(main())

        case.__name__ = body.__name__
        case.__doc__ = body.__doc__
        return case

    return declare
