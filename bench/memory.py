"""Memory in files: pause and resume, snapshots, forks of a Python kernel with its libraries and some data, through the official SDK."""

import statistics
import sys
import time
from contextlib import ExitStack, contextmanager

from checkpoint_peer import Runsc
from code_interpreter import wait_until_warm
from common import OUT, Progress, percentile, summarize
from harness.server import TEMPLATES, Server
from peers import IMPORTS
from scale import available_memory
from sdk import Client

SIZES = (0, 100, 1000)  # MB of data beside the libraries
COPIES = (1, 10, 50)
COPY_BYTES = 200 << 20  # what a copy of the kernel may take, at most
# Servers that differ in how long a paused sandbox stays in memory before it is written to files.
TIERS = {"in files": [], "frozen": ["--keep-frozen", "86400"]}
# Milliseconds: DESIGN.md has them for this machine.
PAUSE_GOALS = {("in files", 0): (150, 120), ("in files", 100): (300, 220), ("frozen", 0): (5, 5), ("frozen", 100): (5, 5), ("frozen", 1000): (5, 5)}
FORK_GOALS = {10: 100}
ENOUGH_FOR_P99 = 50
WARM_UP = 2
SETTLE = 2  # seconds: what killed copies leave to do does not count for the next ones

# A process that says how long it stood still at most since it was asked the last time.
TICKER = """
import os, time
longest, last = 0, time.monotonic()
while True:
    time.sleep(0.0005)
    now = time.monotonic()
    longest, last = max(longest, now - last), now
    if os.path.exists('/tmp/ticker.ask'):
        os.unlink('/tmp/ticker.ask')
        with open('/tmp/ticker.new', 'w') as file: file.write(str(longest * 1000))
        os.rename('/tmp/ticker.new', '/tmp/ticker')
        longest, last = 0, time.monotonic()
"""
START_TICKER = f"import subprocess, sys\nticker = subprocess.Popen([sys.executable, '-c', {TICKER!r}])"
ASK_TICKER = """
import os, time
open('/tmp/ticker.ask', 'w').close()
while not os.path.exists('/tmp/ticker'): time.sleep(0.001)
shown = open('/tmp/ticker').read(); os.unlink('/tmp/ticker')
float(shown)
"""


def rounds_of(options, mb):
    """Fewer of what takes longer."""
    return max(3, options.rounds // {0: 1, 100: 3, 1000: 20}[mb])


def row(name, samples, goal=None):
    p99 = f"{percentile(samples, 99):>9.1f}" if len(samples) >= ENOUGH_FOR_P99 else f"{'':>9}"
    print(f"  {name:<44}{statistics.median(samples):>9.1f}{p99}{'≤ ' + str(goal) if goal else '':>9}")


def size_row(name, sizes):
    print(f"  {name:<44}{statistics.median(sizes) / 1e6:>9.1f}  MB")


def head(title):
    print(f"{title}\n  {'':<44}{'p50 ms':>9}{'p99 ms':>9}{'goal':>9}")


def occupied(*paths):
    return sum(file.stat().st_blocks * 512 for path in paths for file in [path, *path.rglob("*")] if file.is_file())


@contextmanager
def tier_server(options, tier):
    name = "memory-" + tier.replace(" ", "-")
    with Server(f"{options.home}-{name}", OUT / f"server-{name}.log", environment={"ATOLL_POOL_READY": "0", "ATOLL_POOL_SKELETONS": "0"},
                options=[*TIERS[tier], "--metrics-listen", "127.0.0.1:0"]) as server:
        wait_until_warm(server, "on demand", options.template)
        yield server


class Subject:
    """A sandbox of one server that holds so much data."""

    def __init__(self, options, server, node, mb):
        self.server = server
        self.client = Client(node, server.env, "code_client.mjs")
        self.id = self.client.call("open", template=options.template)["id"]
        # No two pages alike: nothing of it can be left out.
        self.evaluate(f"{IMPORTS}\nimport hashlib, os\ndata = os.urandom({mb} << 20)\ntold = hashlib.sha256(data).hexdigest()")

    def evaluate(self, code):
        return self.client.call("evaluate", code=code).get("text")

    def check(self):
        if self.evaluate("hashlib.sha256(data).hexdigest() == told") != "True":
            sys.exit("the data is not what it was")

    def image_bytes(self):
        return occupied(*self.server.home.glob(f"sandboxes/*/{self.id}/memory"))

    def close(self):
        self.client.call("close")
        self.client.close()


# --- pause


def pause_round(subject):
    pause = subject.client.call("pause")["total"]
    image = subject.image_bytes()
    back = subject.client.call("resume")
    return {"pause": pause, "resume": back["total"], "first result after it": back["first"], "image": image}


def pauses(options, servers, node, mb):
    """{tier: {figure: samples}}, round by round in turn."""
    rounds = rounds_of(options, mb)
    samples = {tier: {} for tier in servers}
    progress = Progress(f"pause, {mb} MB", WARM_UP + rounds)
    with ExitStack() as stack:
        subjects = {}
        for tier, server in servers.items():
            subjects[tier] = Subject(options, server, node, mb)
            stack.callback(subjects[tier].close)
        for number in range(WARM_UP + rounds):
            for tier in [*servers][:: -1 if number % 2 else 1]:
                for figure, value in pause_round(subjects[tier]).items():
                    if number >= WARM_UP:
                        samples[tier].setdefault(figure, []).append(value)
            progress.step()
        for subject in subjects.values():
            subject.check()
    return samples


def bench_pause(options, _, node):
    result = {}
    runsc = Runsc(TEMPLATES / options.template / "rootfs")
    with ExitStack() as stack:
        servers = {tier: stack.enter_context(tier_server(options, tier)) for tier in TIERS}
        head(f"pause and resume, Python kernel with numpy, pandas and matplotlib ({options.template})")
        for mb in SIZES:
            for tier, figures in pauses(options, servers, node, mb).items():
                goals = dict(zip(("pause", "resume"), PAUSE_GOALS.get((tier, mb), (None, None))))
                images = figures.pop("image")
                if tier == "in files" and not all(images):
                    print(f"  {mb} MB: the server could not write memory to files; its log says why")
                    continue
                for figure, values in figures.items():
                    row(f"{tier}, {mb} MB: {figure}", values, goals.get(figure))
                if any(images):
                    size_row(f"{tier}, {mb} MB: image", images)
                result[f"{tier}, {mb} MB"] = {**summarize(figures), "image_bytes": images}
            if runsc.installed:
                figures = runsc.samples(mb, max(3, rounds_of(options, mb) // 10))
                for figure in ("checkpoint", "restore"):
                    row(f"runsc {figure}, {mb} MB", figures[figure])
                size_row(f"runsc image, {mb} MB", figures["image"])
                result[f"runsc, {mb} MB"] = figures
    if not runsc.installed:
        print("  runsc checkpoint and restore: not installed")
    return result


# --- snapshot


def snapshot_bytes(server):
    """(memory, disk) of the one snapshot there is."""
    places = list(server.home.glob("snapshots/*/*"))
    return occupied(*(place / "memory" for place in places)), occupied(*(place / "disk.img" for place in places))


def bench_snapshot(options, _, node):
    result = {}
    with tier_server(options, "in files") as server:
        head(f"snapshot of a running sandbox, the same kernel ({options.template})")
        for mb in SIZES:
            figures = {"until the answer": [], "its processes stood still": [], "without a snapshot, in the same time": []}
            sizes = {"memory": [], "disk": []}
            subject = Subject(options, server, node, mb)
            subject.evaluate(START_TICKER)
            rounds = max(3, rounds_of(options, mb) // 3)
            progress = Progress(f"snapshot, {mb} MB", rounds)
            for _ in range(rounds):
                subject.evaluate(ASK_TICKER)
                made = subject.client.call("snapshot")
                figures["until the answer"].append(made["total"])
                figures["its processes stood still"].append(float(subject.evaluate(ASK_TICKER)))
                for kind, size in zip(sizes, snapshot_bytes(server)):
                    sizes[kind].append(size)
                subject.client.call("forget", id=made["id"])
                subject.evaluate(ASK_TICKER)
                time.sleep(made["total"] / 1000)
                figures["without a snapshot, in the same time"].append(float(subject.evaluate(ASK_TICKER)))
                progress.step()
            subject.check()
            subject.close()
            for figure, values in figures.items():
                row(f"{mb} MB: {figure}", values)
            for kind, values in sizes.items():
                size_row(f"{mb} MB: its {kind}", values)
            result[f"{mb} MB"] = {**summarize(figures), "bytes": sizes}
    return result


# --- fork


def bench_fork(options, _, node):
    result = {}
    with tier_server(options, "in files") as server:
        subject = Subject(options, server, node, 0)
        subject.evaluate("import pandas, numpy\nframe = pandas.DataFrame({'a': numpy.arange(100_000)})")
        head(f"copies of a running sandbox at once, the same kernel with a DataFrame ({options.template}); per copy")
        for copies in COPIES:
            if available_memory() < copies * COPY_BYTES:
                print(f"  {copies} copies: left out, they may take {copies * COPY_BYTES >> 20} MiB and {available_memory() >> 20} are free")
                continue
            rounds = max(3, options.rounds // (copies * 4))
            figures = {"until the answer": [], "all have given a result": [], "the first has": []}
            failed = []
            progress = Progress(f"fork, {copies}", rounds)
            for _ in range(rounds):
                done = subject.client.call("fork", count=copies)
                time.sleep(SETTLE)
                progress.step()
                if done["failed"]:
                    failed += done["failed"]
                    continue
                figures["until the answer"].append(done["total"] / copies)
                figures["all have given a result"].append(max(done["ready"]) / copies)
                figures["the first has"].append(min(done["ready"]))
            if failed:
                print(f"  {copies}: {len(failed)} of {copies * rounds} copies FAILED: {failed[0]}")
            if not figures["until the answer"]:
                continue
            row(f"{copies}: until the answer", figures["until the answer"], FORK_GOALS.get(copies))
            row(f"{copies}: until all have given a result", figures["all have given a result"])
            row(f"{copies}: until the first has (not per copy)", figures["the first has"])
            result[f"{copies}"] = summarize(figures)
        if subject.evaluate("int(frame['a'].sum())") != "4999950000":
            sys.exit("the source has changed")
        subject.close()
    return result
