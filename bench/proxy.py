"""Requests per second through the sandbox proxy, beside nginx as a reverse proxy on the host."""

import asyncio
import re
import shutil
import statistics
import subprocess
import sys

from common import OUT, ROOT, Nginx, Progress, free_port, wait_for_port
from scale import connection

SECONDS = 4
CONNECTIONS = 32
PORT_INSIDE = 8000

REVERSE = """
  upstream hello {
    server 127.0.0.1:%HELLO%;
    keepalive 64;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:%PORT%;
    location / {
      proxy_pass http://hello;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }
  }
"""


def build_server():
    binary = OUT / "hello_server"
    subprocess.run([shutil.which("clang-19") or "clang", "-O2", "-static", "-s", "-o", str(binary), str(ROOT / "bench/hello_server.c")],
                   check=True)
    return binary


def requests_per_second(url, headers=()):
    arguments = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s"]
    for header in headers:
        arguments += ["-H", header]
    done = subprocess.run([*arguments, url], capture_output=True, text=True)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    if done.returncode != 0 or not rate or "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        sys.exit(f"wrk {url} failed:\n{done.stdout}{done.stderr}")
    return float(rate.group(1))


async def start_inside(server, binary):
    client = await connection(server).open()
    sandbox = await client.create()
    await client.upload(sandbox, "/home/user/hello_server", binary.read_bytes())
    await client.run(sandbox, f"chmod +x /home/user/hello_server; nohup /home/user/hello_server {PORT_INSIDE} >/dev/null 2>&1 & sleep 0.5")
    client.close()
    return sandbox


async def end(server, sandbox):
    client = await connection(server).open()
    await client.kill(sandbox)
    client.close()


def bench_proxy(options, server, _):
    binary = build_server()
    sandbox = asyncio.run(start_inside(server, binary))
    port = free_port()
    host_server = subprocess.Popen([str(binary), str(port)])
    names = ("through Atoll to a sandbox", "through nginx to the host", "the host's server itself")
    samples = {name: [] for name in names}
    rounds = max(3, options.rounds // 20)
    headers = [f"E2b-Sandbox-Id: {sandbox['sandboxID']}", f"E2b-Sandbox-Port: {PORT_INSIDE}"]
    try:
        wait_for_port(port, "hello_server")
        with Nginx(REVERSE.replace("%HELLO%", str(port))) as nginx:
            progress = Progress("proxy", rounds)
            for number in range(rounds):
                measures = [lambda: requests_per_second(server.exports["E2B_API_URL"] + "/", headers),
                            lambda: requests_per_second(f"http://127.0.0.1:{nginx.port}/"),
                            lambda: requests_per_second(f"http://127.0.0.1:{port}/")]
                for turn in range(3):
                    index = (number + turn) % 3
                    samples[names[index]].append(measures[index]())
                progress.step()
    finally:
        host_server.kill()
        host_server.wait()
        asyncio.run(end(server, sandbox))
    ours, theirs = (statistics.median(samples[name]) for name in names[:2])
    print(f"GET of 13 bytes, {CONNECTIONS} kept connections, wrk, {rounds} x {SECONDS} s\n  {'':<44}{'requests/s':>12}{'ours / nginx':>14}")
    for name in names:
        print(f"  {name:<44}{statistics.median(samples[name]):>12.0f}" + (f"{ours / theirs:>14.2f}" if name == names[0] else ""))
    return {name: {"p50": statistics.median(values), "samples": values} for name, values in samples.items()}
