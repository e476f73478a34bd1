"""Lives of sandboxes for an hour: create, cells in random languages, kernels killed at random, kill; in the end nothing is left."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter

from common import OUT, ROOT
from harness.server import TEMPLATES, Server, StartFailed
from rawclient import CallFailed
from scale import connection

CLIENTS = 4
SAY_EVERY = 10  # seconds

# What shows 42, and what kills the kernel that runs it.
LANGUAGES = {
    "python": ("6 * 7", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
    "javascript": ("6 * 7", "process.kill(process.pid, 'SIGKILL')"),
    "typescript": ("const n: number = 6 * 7; n", "process.kill(process.pid, 'SIGKILL')"),
    "bash": ("echo $((6 * 7))", "kill -9 $$"),
    "r": ("cat(6 * 7)", "tools::pskill(Sys.getpid(), 9)"),
    "java": ("6 * 7", "Runtime.getRuntime().halt(9)"),
}
# These take seconds to start.
WEIGHTS = {"python": 8, "javascript": 4, "typescript": 2, "bash": 4, "r": 1, "java": 1}


def languages_of(template):
    """Those that the template has."""
    facts = json.loads((TEMPLATES / template / "rootfs/etc/atoll/interpreter.json").read_text())
    return [name for name in LANGUAGES if name in facts["languages"]]


async def life(client, options, dice, languages, counts):
    sandbox = await client.create(template=options.template, timeout=600)
    counts["sandboxes"] += 1
    try:
        for _ in range(dice.randint(1, 4)):
            language = dice.choices(languages, [WEIGHTS[name] for name in languages])[0]
            code, deadly = LANGUAGES[language]
            if dice.random() < 0.25:
                await client.execute(sandbox, deadly, language=language, may_die=True)
                counts["kernels killed"] += 1
            await client.execute(sandbox, code, "42", language=language)
            counts["cells"] += 1
            counts[language] += 1
    finally:
        await client.kill(sandbox)


async def soak(server, options, languages, counts):
    end = time.monotonic() + options.seconds
    dice = random.Random(options.seed)
    failures = []

    async def one(number):
        own = random.Random(dice.random())
        client = await connection(server).open()
        while time.monotonic() < end and len(failures) < 10:
            try:
                await life(client, options, own, languages, counts)
            except (CallFailed, OSError, asyncio.IncompleteReadError) as failure:
                failures.append(repr(failure))
                print(f"soak: FAILED: {failure!r}", file=sys.stderr, flush=True)
                client.close()
                client = await connection(server).open()
        client.close()

    async def say():
        began = time.monotonic()
        while (left := end - time.monotonic()) > 0 and len(failures) < 10:
            await asyncio.sleep(min(SAY_EVERY, max(left, 0.1)))
            print(f"soak {time.monotonic() - began:.0f}/{options.seconds} s: {counts['sandboxes']} sandboxes, {counts['cells']} cells, "
                  f"{counts['kernels killed']} kernels killed, {len(failures)} failures", file=sys.stderr, flush=True)

    await asyncio.gather(say(), *(one(number) for number in range(CLIENTS)))
    client = await connection(server).open()
    left = await client.api("GET", "/v2/sandboxes?limit=100", None, 200)
    client.close()
    if left:
        failures.append(f"{len(left)} sandboxes are still listed")
    return failures


def bench_soak(options, _, __):
    languages = languages_of(options.template)
    counts = Counter()
    home = f"{options.home}-soak"
    try:
        with Server(home, OUT / "server-soak.log") as server:
            failures = asyncio.run(soak(server, options, languages, counts))
            if server.process.poll() is not None:
                failures.append("the server ended by itself")
    except StartFailed as failure:
        sys.exit(str(failure))
    left = subprocess.run([sys.executable, str(ROOT / "tests/testing/leakcheck"), home], capture_output=True, text=True)
    if left.returncode != 0:
        failures.append(f"left behind:\n{left.stdout}{left.stderr}")
    print(f"soak of {options.seconds} s, {CLIENTS} clients, seed {options.seed}: {', '.join(languages)}")
    for name, count in counts.items():
        print(f"  {name:<44}{count:>9}")
    print("  nothing is left, nothing failed" if not failures else "FAILED: " + "; ".join(failures))
    if failures:
        raise SystemExit(1)
    return dict(counts)
