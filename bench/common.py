"""What the benchmarks share: progress, figures, an nginx of their own."""

import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "bench"
WARM_UP = 5


class Progress:
    """`name 40/100` on stderr: rewritten on a terminal, a line per tenth otherwise."""

    def __init__(self, name, total):
        self.name, self.total, self.done = name, total, 0

    def step(self):
        self.done += 1
        if sys.stderr.isatty():
            print(f"\r{self.name} {self.done}/{self.total}", end="\n" if self.done == self.total else "",
                  file=sys.stderr, flush=True)
        elif self.done % max(1, self.total // 10) == 0:
            print(f"{self.name} {self.done}/{self.total}", file=sys.stderr, flush=True)


def percentile(samples, percent):
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def interleaved(name, rounds, measures, every=()):
    """Samples per measure, one of each per round; the order turns so that nobody always follows the same one.

    `every` names those that are measured in one of so many rounds only."""
    every = dict(every)
    names = list(measures)
    samples = {measure: [] for measure in names}
    progress = Progress(name, WARM_UP + rounds)
    for round_number in range(WARM_UP + rounds):
        turn = round_number % len(names)
        for measure in names[turn:] + names[:turn]:
            if round_number % every.get(measure, 1) != 0:
                continue
            value = measures[measure]()
            if round_number >= WARM_UP:
                samples[measure].append(value)
        progress.step()
    return samples


def latency_table(title, samples, ours):
    base = statistics.median(samples[ours])
    lines = [title, f"  {'':<44}{'p50 ms':>9}{'p99 ms':>9}{'ours / it':>11}"]
    for name, values in samples.items():
        median = statistics.median(values)
        ratio = "" if name == ours or name.startswith(" ") else f"{base / median:.2f}"
        lines.append(f"  {name:<44}{median:>9.2f}{percentile(values, 99):>9.2f}{ratio:>11}")
    return "\n".join(lines)


def summarize(samples):
    return {name: {"p50": statistics.median(values), "p99": percentile(values, 99), "min": min(values),
                   "samples": values} for name, values in samples.items()}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port, what):
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"{what} did not start")


class Nginx:
    """With the given `location` blocks on a free port of loopback; %DIR% in them is a directory of its own."""

    def __init__(self, http):
        self.http = http

    def __enter__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="nginx-", dir=OUT))
        (self.directory / "files").mkdir()
        self.port = free_port()
        (self.directory / "nginx.conf").write_text(f"""
user root;
worker_processes auto;
pid {self.directory}/pid;
error_log {self.directory}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  client_body_temp_path {self.directory}/body;
{self.http.replace("%DIR%", str(self.directory)).replace("%PORT%", str(self.port))}
}}
""")
        self.process = subprocess.Popen([shutil.which("nginx") or "/usr/sbin/nginx", "-p", str(self.directory), "-c",
                                         str(self.directory / "nginx.conf"), "-g", "daemon off;"])
        wait_for_port(self.port, "nginx")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
