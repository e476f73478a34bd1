"""The code interpreter: how long until the first result, and what a warm kernel costs."""

import asyncio
import json
import statistics
import sys
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

from common import OUT, Progress, interleaved, latency_table, summarize
from harness import toolchain
from harness.server import TEMPLATES, Server
from peers import IMPORTS, Jupyter, KernelManager, cold_peers
from rawclient import CallFailed
from scale import (BURST, DENSITY_CLIENTS, SUSTAINED_CLIENTS, SUSTAINED_SECONDS, available_memory, bursts, connection, line, lives_of,
                   print_burst, shared, timed)
from sdk import Client

CELL = f"{IMPORTS}\n1+1"
# Servers that differ in what they keep ready, and what `/metrics` shows when they have it.
TIERS = {
    "pool": {"ATOLL_POOL_READY": "4", "ATOLL_POOL_SKELETONS": "0"},
    "skeleton": {"ATOLL_POOL_READY": "0", "ATOLL_POOL_SKELETONS": "4"},
    "on demand": {"ATOLL_POOL_READY": "0", "ATOLL_POOL_SKELETONS": "0"},
}
SHELF = {"pool": "ready", "skeleton": "skeleton"}
FILL_LIMIT = 120
PEER_EVERY = 4  # rounds: they take a second and more each


def metric(server, name):
    """The sum of a family's samples whose name and labels begin so; 0 if there are none."""
    with urllib.request.urlopen(server.facts()["metrics"], timeout=10) as answer:
        rows = answer.read().decode().splitlines()
    return sum(float(row.rsplit(" ", 1)[1]) for row in rows if row.startswith(name))


def zygotes_expected():
    return sum(json.loads(path.read_text()).get("zygote", False) for path in TEMPLATES.glob("[!.]*/manifest.json"))


def wait_until_warm(server, tier, template):
    """Until its zygotes can fork, and until there is something on the shelf."""
    end = time.monotonic() + FILL_LIMIT
    wanted = zygotes_expected()
    while True:
        shelf = f'atoll_pool_sandboxes{{template="{template}",tier="{SHELF[tier]}"}}' if tier in SHELF else None
        if metric(server, "atoll_zygotes_prepared ") >= wanted and (shelf is None or metric(server, shelf) >= 1):
            return
        if time.monotonic() > end:
            sys.exit(f"{tier}: not warm after {FILL_LIMIT} s; the server's log ends:\n{server.tail(20)}")
        time.sleep(0.01)


@contextmanager
def tier_server(options, tier):
    name = tier.replace(" ", "-")
    with Server(f"{options.home}-{name}", OUT / f"server-{name}.log", environment=TIERS[tier],
                options=["--metrics-listen", "127.0.0.1:0"]) as server:
        wait_until_warm(server, tier, options.template)
        yield server


def python_sdk():
    """The interpreter of a virtual environment with the Python SDK; None where PyPI is out of reach."""
    try:
        python, version = toolchain.ensure_python_sdk()
    except toolchain.Unavailable as failure:
        print(f"the Python SDK is left out: {str(failure).splitlines()[0]}")
        return None
    if toolchain.run([python, "-c", "import e2b_code_interpreter"]).returncode != 0:
        print("the Python SDK is left out: e2b-code-interpreter is not installed")
        return None
    print(f"Python SDK {version}")
    return python


# --- first result


def bench_first_result(options, _, node):
    creates = {}
    python = python_sdk()
    with ExitStack() as stack:
        measures = {}

        def add(name, server, tier, client):
            stack.callback(client.close)
            creates[name] = []

            def measure():
                wait_until_warm(server, tier, options.template)
                answer = client.call("first", template=options.template, code=CELL, expect="2")
                creates[name].append(answer["create"])
                return answer["total"]

            measures[name] = measure

        for tier in TIERS:
            server = stack.enter_context(tier_server(options, tier))
            add(tier, server, tier, Client(node, server.env, "code_client.mjs"))
            if python:
                add(f"{tier}, Python SDK", server, tier, Client(python, server.env, "code_client.py"))
        peers, missing, cold = cold_peers(TEMPLATES / options.template / "rootfs")
        stack.callback(cold.close)
        samples = interleaved("first-result", options.rounds, {**measures, **peers}, {name: PEER_EVERY for name in peers})
    for name, values in list(creates.items()):
        samples[f"  of {name}: create alone"] = values[-len(samples[name]):]
    print(latency_table(f"create to the first result, numpy, pandas and matplotlib imported ({options.template})", samples, "pool"))
    if missing:
        print(f"  not here: {', '.join(missing)}")
    return summarize(samples)


# --- run_code


def bench_run_code(options, _, node):
    with ExitStack() as stack:
        server = stack.enter_context(tier_server(options, "pool"))
        client = Client(node, server.env, "code_client.mjs")
        stack.callback(client.close)
        client.call("open", template=options.template)
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        plain = loop.run_until_complete(connection(server).open())
        stack.callback(plain.close)
        sandbox = loop.run_until_complete(plain.create(template=options.template))

        def by_hand():
            return loop.run_until_complete(timed(plain.execute(sandbox, "1+1", "2")))[1]

        name = "runCode(\"1+1\"), SDK"
        measures = {name: lambda: client.call("run", code="1+1", expect="2")["total"], "the same call, plain HTTP": by_hand}
        if KernelManager:
            jupyter = Jupyter()
            jupyter.open()
            stack.callback(jupyter.close)
            measures["Jupyter kernel over ZMQ"] = jupyter.run
        samples = interleaved("run-code", options.rounds * 2, measures)
        client.call("close")
        loop.run_until_complete(plain.kill(sandbox))
    print(latency_table("run_code(\"1+1\") in a running sandbox", samples, name))
    if not KernelManager:
        print("  not here: python3-ipykernel")
    return summarize(samples)


# --- many


def first_cell(options):
    async def make(client):
        return await client.create(template=options.template)

    async def use(client, sandbox):
        await client.execute(sandbox, CELL, "2")

    return make, use


def bench_burst_code(options, _, __):
    with tier_server(options, "pool") as server:
        result = bursts(server, max(3, options.rounds // 20), "burst-code", *first_cell(options))
    print_burst(result, f"{BURST} creates at once, each to its first result", "first result")
    return result


def bench_sustained_code(options, _, __):
    with tier_server(options, "pool") as server:
        lives, rate = asyncio.run(lives_of(server, SUSTAINED_SECONDS, "sustained-code", *first_cell(options)))
    print(f"create, first result, kill from {SUSTAINED_CLIENTS} clients for {SUSTAINED_SECONDS} s\n  {'':<44}{'p50':>9}{'p99':>9}")
    line("one life", lives)
    print(f"  {'lives per second':<44}{rate:>9.1f}")
    return {"lives_per_second": rate, "life_ms": lives}


async def density(options, server):
    count = options.sandboxes
    clients = await asyncio.gather(*(connection(server).open() for _ in range(DENSITY_CLIENTS)))
    make, use = first_cell(options)
    sandboxes, firsts, again = [], [], []
    before = available_memory()
    progress = Progress("density-code: first result", count)

    async def create(client, _):
        async def life():
            sandbox = await make(client)
            await use(client, sandbox)
            return sandbox

        sandbox, took = await timed(life())
        sandboxes.append(sandbox)
        firsts.append(took)
        progress.step()

    await shared(clients, count, create)
    await asyncio.sleep(5)
    after = available_memory()
    progress = Progress("density-code: ask each", count)

    async def ask(client, number):
        again.append((await timed(client.execute(sandboxes[number], "1+1", "2")))[1])
        progress.step()

    await shared(clients, count, ask)
    progress = Progress("density-code: kill", count)

    async def kill(client, number):
        await client.kill(sandboxes[number])
        progress.step()

    await shared(clients, count, kill)
    for client in clients:
        client.close()
    return {"sandboxes": count, "first_ms": firsts, "again_ms": again, "memory_per_sandbox_mib": (before - after) / count / (1 << 20)}


def bench_density_code(options, _, __):
    try:
        with tier_server(options, "on demand") as server:
            result = asyncio.run(density(options, server))
    except CallFailed as failure:
        print(f"density-code FAILED: {failure}")
        raise SystemExit(1) from failure
    print(f"{result['sandboxes']} sandboxes alive at once, each with a Python kernel that has run a cell\n  {'':<44}{'p50':>9}{'p99':>9}")
    line("create to the first result", result["first_ms"])
    line("1+1 in each, all alive", result["again_ms"])
    print(f"  {'memory of an idle one, whole machine':<44}{result['memory_per_sandbox_mib']:>9.2f}  MiB")
    return result
