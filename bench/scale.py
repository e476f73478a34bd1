"""Many sandboxes: bursts, sustained creation, density."""

import asyncio
import statistics
import time

from common import Progress, percentile
from rawclient import CallFailed, Connection

BURST = 100
SUSTAINED_CLIENTS = 8
SUSTAINED_SECONDS = 15
DENSITY_CLIENTS = 8


def connection(server):
    return Connection(server.exports["E2B_API_URL"], server.exports["E2B_API_KEY"])


def line(name, samples, unit="ms"):
    print(f"  {name:<44}{statistics.median(samples):>9.2f}{percentile(samples, 99):>9.2f}  {unit}")


async def timed(call):
    began = time.perf_counter()
    value = await call
    return value, (time.perf_counter() - began) * 1000


# --- burst


async def base_sandbox(client):
    return await client.create()


async def one_command(client, sandbox):
    await client.run(sandbox)


async def one_burst(server, count, make, use):
    clients = await asyncio.gather(*(connection(server).open() for _ in range(count)))
    began = time.perf_counter()

    async def one(client):
        sandbox = await make(client)
        created = time.perf_counter()
        await use(client, sandbox)
        return sandbox, (created - began) * 1000, (time.perf_counter() - began) * 1000

    results = await asyncio.gather(*(one(client) for client in clients), return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    done = [(client, result) for client, result in zip(clients, results) if not isinstance(result, BaseException)]
    for client, (sandbox, _, _) in done:
        await client.kill(sandbox)
    for client in clients:
        client.close()
    return [result[1] for _, result in done], [result[2] for _, result in done], failures


def bursts(server, rounds, name, make=base_sandbox, use=one_command):
    creates, firsts, rates, slowest, failed = [], [], [], [], []
    progress = Progress(name, rounds)
    for _ in range(rounds):
        made, ran, failures = asyncio.run(one_burst(server, BURST, make, use))
        creates += made
        firsts += ran
        failed += [repr(failure) for failure in failures]
        if made:
            rates.append(len(made) / (max(made) / 1000))
            slowest.append(max(ran))
        progress.step()
    return {"created_ms": creates, "first_ms": firsts, "creates_per_second": rates, "slowest_ms": slowest, "failures": failed,
            "failed": len(failed), "of": rounds * BURST}


def print_burst(result, title, first):
    print(f"{title}, {result['of'] // BURST} times; since the burst began\n  {'':<44}{'p50':>9}{'p99':>9}")
    if result["created_ms"]:
        line("created", result["created_ms"])
        line(f"{first} done", result["first_ms"])
        line("the last one of a burst", result["slowest_ms"])
        print(f"  {'creates per second':<44}{statistics.median(result['creates_per_second']):>9.0f}")
    failures = result["failures"]
    print(f"  {'succeeded':<44}{result['of'] - len(failures):>9} of {result['of']}" + (f"; first failure: {failures[0]}" if failures else ""))


def bench_burst(options, server, _):
    result = bursts(server, max(3, options.rounds // 20), "burst")
    print_burst(result, f"{BURST} creates at once", "first command")
    return result


# --- sustained


async def lives_of(server, seconds, name, make=base_sandbox, use=one_command):
    clients = await asyncio.gather(*(connection(server).open() for _ in range(SUSTAINED_CLIENTS)))
    lives = []
    progress = Progress(name, seconds)
    began = time.perf_counter()
    end = began + seconds

    async def one(client):
        while time.perf_counter() < end:
            start = time.perf_counter()
            sandbox = await make(client)
            await use(client, sandbox)
            await client.kill(sandbox)
            lives.append((time.perf_counter() - start) * 1000)

    async def tick():
        for _ in range(seconds):
            await asyncio.sleep(1)
            progress.step()

    await asyncio.gather(tick(), *(one(client) for client in clients))
    took = time.perf_counter() - began
    for client in clients:
        client.close()
    return lives, len(lives) / took


def bench_sustained(options, server, _):
    lives, rate = asyncio.run(lives_of(server, SUSTAINED_SECONDS, "sustained"))
    print(f"create, run, kill from {SUSTAINED_CLIENTS} clients for {SUSTAINED_SECONDS} s\n  {'':<44}{'p50':>9}{'p99':>9}")
    line("one life", lives)
    print(f"  {'lives per second':<44}{rate:>9.1f}")
    return {"lives_per_second": rate, "life_ms": lives}


# --- density


def available_memory():
    with open("/proc/meminfo") as info:
        return next(int(row.split()[1]) for row in info if row.startswith("MemAvailable")) * 1024


def resident(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(row.split()[1]) for row in status if row.startswith("VmRSS")) / 1024


async def shared(clients, count, work):
    """Every client takes the next piece of work until there is none."""
    queue = list(range(count))

    async def one(client):
        while queue:
            await work(client, queue.pop())

    await asyncio.gather(*(one(client) for client in clients))


async def density(server, count):
    clients = await asyncio.gather(*(connection(server).open() for _ in range(DENSITY_CLIENTS)))
    sandboxes, creates, answers = [], [], []
    before = available_memory()
    progress = Progress("density: create", count)

    async def create(client, _):
        sandbox, took = await timed(client.create())
        sandboxes.append(sandbox)
        creates.append(took)
        progress.step()

    began = time.perf_counter()
    await shared(clients, count, create)
    made_in = time.perf_counter() - began
    await asyncio.sleep(3)
    after = available_memory()
    progress = Progress("density: ask each", count)

    async def ask(client, number):
        _, took = await timed(client.run(sandboxes[number], "test -e /proc/1"))
        answers.append(took)
        progress.step()

    await shared(clients, count, ask)
    rss = resident(server.pid)
    progress = Progress("density: kill", count)

    async def kill(client, number):
        await client.kill(sandboxes[number])
        progress.step()

    began = time.perf_counter()
    await shared(clients, count, kill)
    killed_in = time.perf_counter() - began
    for client in clients:
        client.close()
    return {"sandboxes": count, "create_ms": creates, "answer_ms": answers, "created_in_s": made_in, "killed_in_s": killed_in,
            "memory_per_sandbox_mib": (before - after) / count / (1 << 20), "server_rss_mib": rss}


def bench_density(options, server, _):
    try:
        result = asyncio.run(density(server, options.sandboxes))
    except CallFailed as failure:
        print(f"density FAILED: {failure}")
        raise SystemExit(1) from failure
    count = options.sandboxes
    print(f"{count} sandboxes alive at once, made by {DENSITY_CLIENTS} clients\n  {'':<44}{'p50':>9}{'p99':>9}")
    line("create", result["create_ms"])
    line("a command in each, all alive", result["answer_ms"])
    print(f"  {'creates per second':<44}{count / result['created_in_s']:>9.1f}")
    print(f"  {'kills per second':<44}{count / result['killed_in_s']:>9.1f}")
    print(f"  {'memory of an idle one, whole machine':<44}{result['memory_per_sandbox_mib']:>9.2f}  MiB")
    print(f"  {'memory of the server':<44}{result['server_rss_mib']:>9.1f}  MiB")
    print(f"  {'answered':<44}{len(result['answer_ms']):>9} of {count}")
    return result
