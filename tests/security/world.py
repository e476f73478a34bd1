"""What the attacks meet: a real server, two sandboxes, and canaries on the host."""

import contextlib
import ctypes
import http.client
import io
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))

from client import Api, ApiError, RpcError
from harness.lab import DOMAIN, SERVER as LAB_HOST
from model import Fail, Skip, Verdict, parse_verdict

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
INSIDE = "/home/user/payloads"


class Victim:
    """A process on the host with a secret in memory, an open file and a counter of signals."""

    def __init__(self, program, secret, path, marker):
        self.secret, self.marker = secret, marker
        self.process = subprocess.Popen([program, secret, path, marker], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        pid, address, fd = self.process.stdout.readline().split()
        self.pid, self.address, self.fd = int(pid), address.decode(), int(fd)

    def signals(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait(10)


class HostSocket:
    """A listening Unix socket of the host; counts who comes and tells each the secret."""

    def __init__(self, address, secret):
        self.connections = 0
        self.secret = secret.encode()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        if not address.startswith("\0"):
            os.chmod(address, 0o777)
        self.listener.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                self.connections += 1
                with peer:
                    peer.sendall(self.secret)

    def stop(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Disk:
    """A block device of the host with a file system and a secret in it: a loop device over a small image."""

    def __init__(self, directory, secret):
        image, content = os.path.join(directory, "disk.img"), os.path.join(directory, "disk")
        os.mkdir(content)
        with open(os.path.join(content, "secret.txt"), "w") as file:
            file.write(secret)
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", content, image, "1M"], check=True, capture_output=True)
        self.path = subprocess.run(["losetup", "--find", "--show", "--read-only", image], check=True, capture_output=True,
                                   text=True).stdout.strip()
        number = os.stat(self.path).st_rdev
        self.major, self.minor = os.major(number), os.minor(number)

    def stop(self):
        subprocess.run(["losetup", "--detach", self.path], check=True)


class Server:
    """`atoll up` on a free port, with a home and, if given, templates or programs of its own, and TLS for a domain."""

    def __init__(self, build, home, log, templates=None, programs=None, domain=None, tls_host=None):
        os.makedirs(home, exist_ok=True)
        env = {**os.environ, **({"ATOLL_TEMPLATES": templates} if templates else {})}
        env.pop("ATOLL_HOME", None)
        self.home, self.log_path = home, log
        self.port, self.tls_port, self.ca = free_port(), None, None
        atoll = os.path.join(programs or os.path.join(build, "bin"), "atoll")
        command = [atoll, "up", "--home", home, "--listen", f"127.0.0.1:{self.port}", "--metrics-listen", "off"]
        if domain:
            self.tls_port = free_port()
            self.ca = os.path.join(home, "keys", "ca.pem")
            done = subprocess.run([atoll, "cert", "--home", home, domain], capture_output=True, text=True, env=env)
            if done.returncode != 0:
                raise SystemExit("security: no certificates: " + done.stderr)
            command += ["--domain", domain, "--tls-listen", f"{tls_host}:{self.tls_port}"]
        with open(log, "wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output, env=env,
                                            start_new_session=True)
        key = None
        deadline = time.monotonic() + 60
        while key is None:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            line = self.process.stdout.readline().decode() if ready else ""
            if not line:
                self.stop()
                raise SystemExit("security: the server did not come up:\n" + self.log()[-2000:])
            if line.startswith("export E2B_API_KEY="):
                key = line.split("=", 1)[1].strip().strip("'\"")
        self.api = Api("127.0.0.1", self.port, key)

    @property
    def pid(self):
        """Of the process that serves; it changes when the supervisor starts another."""
        with open(os.path.join(self.home, "state", "server.json")) as file:
            return json.load(file)["pid"]

    def log(self):
        return read_text(self.log_path)

    def ended(self):
        return self.process.poll() is not None

    def stop(self):
        stop_process(self.process, 30, signal.SIGINT)  # SIGTERM would leave the sandboxes


class World:
    def __init__(self, verbose=False, lab=None):
        self.verbose = verbose
        self.lab = lab
        self.domain, self.tls_host = DOMAIN, LAB_HOST
        self.with_network = {}  # sandboxes by their network, see table/network.py
        self.listener = None
        self.build = os.path.abspath(os.environ.get("ATOLL_BUILD") or os.path.join(ROOT, "build/release"))
        self.payloads = os.path.join(self.build, "tests/payloads")
        top = os.environ.get("ATOLL_TEST_HOME") or "/var/lib/atoll-test"
        os.makedirs(top, exist_ok=True)
        self.home = os.path.join(top, "security")
        self.work = tempfile.mkdtemp(prefix="security-work-", dir=top)
        os.chmod(self.work, 0o755)
        self.stage = os.path.join(self.work, "stage")  # where barehost.py puts a control's own tmpfs
        self.secret = secrets.token_hex(16)
        os.environ["SECURITY_CANARY"] = self.secret  # the server's environment has it, no sandbox may
        os.mkdir(os.path.join(self.work, "canary"))
        self.canary = os.path.join(self.work, "canary", "secret.txt")
        # Readable by everybody: what protects it is that a sandbox cannot reach it.
        with open(self.canary, "w") as file:
            file.write(self.secret + "\n")
        os.chmod(self.canary, 0o644)
        self.marker = "canary-" + secrets.token_hex(8)
        self.victim = Victim(self.payload("canary"), secrets.token_hex(16), self.canary, self.marker)
        self.host_socket_path = os.path.join(self.work, "canary", "host.sock")
        self.host_socket = HostSocket(self.host_socket_path, self.secret)
        self._disk = None
        self.server = None
        self.api = None
        self.main = self.neighbour = None
        self.extra = []

    # ---- the host's side

    def payload(self, name):
        path = os.path.join(self.payloads, name)
        if not os.access(path, os.X_OK):
            raise SystemExit(f"security: {path} is missing; build the target `payloads`")
        return path

    def disk(self):
        if not self._disk:
            try:
                self._disk = Disk(self.work, self.secret)
            except (OSError, subprocess.CalledProcessError) as error:
                raise Skip(f"no control on this machine: no loop device ({error})")
        return self._disk

    def on_host(self, payload, args, timeout=60, **options):
        """The payload without protection, see barehost.py."""
        command = [sys.executable, os.path.join(HERE, "barehost.py"), "--work", self.work]
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            if value is True:
                command.append(flag)
            elif isinstance(value, (list, tuple)):
                command += [part for one in value for part in (flag, one)]
            else:
                command += [flag, str(value(self) if callable(value) else value)]
        command += [self.payload(payload), *map(str, args)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)
        return parse_verdict(done.returncode, done.stdout, done.stderr)

    def host_process(self, payload, args, ready):
        """A payload as a partner on the host: started, waited for, stopped by closing its stdin and by signal."""
        process = subprocess.Popen([self.payload(payload), *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = process.stdout.readline().decode().strip()
        if not line.startswith(ready):
            stop_process(process)
            raise Fail(f"{payload} on the host said {line!r} instead of {ready}")
        return process

    # ---- the sandboxes' side

    def start_server(self):
        self.server = Server(self.build, self.home, os.path.join(self.work, "server.log"), domain=self.domain, tls_host=self.tls_host)
        self.api = self.server.api
        self.main = self.new_sandbox()
        self.neighbour = self.new_sandbox()

    def new_sandbox(self, **options):
        sandbox = self.api.create(**options)
        self.extra.append(sandbox)
        sandbox.has_payloads = False
        return sandbox

    @contextlib.contextmanager
    def attacked_from(self, sandbox, neighbour=None):
        """Other sandboxes in the places of the attacker and of its neighbour."""
        before = self.main, self.neighbour
        self.main, self.neighbour = sandbox, neighbour or self.neighbour
        try:
            yield
        finally:
            self.main, self.neighbour = before

    def drop_sandbox(self, sandbox):
        self.extra.remove(sandbox)
        sandbox.kill()

    def give_payloads(self, sandbox, only=None):
        """All payloads once; for a short-lived sandbox only the one that it needs."""
        if sandbox.has_payloads:
            return
        if only:
            sandbox.upload(f"{INSIDE}/{only}", read_bytes(self.payload(only)))
            sandbox.run(["/bin/chmod", "755", f"{INSIDE}/{only}"])
            sandbox.has_payloads = True
            return
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
            for name in sorted(os.listdir(self.payloads)):
                path = os.path.join(self.payloads, name)
                if os.path.isfile(path) and os.access(path, os.X_OK):
                    tar.add(path, name)
        sandbox.upload("/tmp/payloads.tgz", buffer.getvalue())
        code, out, err = sandbox.run(
            ["/bin/sh", "-c", f"mkdir -p {INSIDE} && tar xzf /tmp/payloads.tgz --no-same-owner -C {INSIDE} && rm /tmp/payloads.tgz"])
        if code != 0:
            raise Fail(f"cannot unpack the payloads inside: {out + err!r}")
        sandbox.has_payloads = True

    def inside(self, payload, args, user, sandbox=None, timeout=60):
        sandbox = sandbox or self.main
        self.give_payloads(sandbox)
        try:
            code, out, err = sandbox.run([f"{INSIDE}/{payload}", *map(str, args)], user=user, timeout=timeout, cwd="/tmp")
        except (ApiError, RpcError, OSError) as error:
            return Verdict("NOTHING", f"the sandbox did not answer: {error}")
        return parse_verdict(code, out, err)

    def pids_of(self, sandbox):
        """Host pids of all processes of a sandbox: its cgroup is named after it."""
        found = []
        for pid in all_pids():
            with contextlib.suppress(OSError):
                if sandbox.id in read_text(f"/proc/{pid}/cgroup"):
                    found.append(pid)
        if not found:
            raise Fail(f"no process on the host belongs to a cgroup of sandbox {sandbox.id}")
        return found

    def init_of(self, sandbox):
        for pid in self.pids_of(sandbox):
            with contextlib.suppress(OSError):
                if status_of(pid).get("NSpid", "").split()[-1:] == ["1"]:
                    return pid
        raise Fail(f"sandbox {sandbox.id} has no PID 1")

    def warden_pid(self):
        for pid in all_pids():
            with contextlib.suppress(OSError):
                status = status_of(pid)
                if int(status["PPid"]) == self.server.pid and status["Name"].startswith("atoll-warden"[:15]):
                    return pid
        raise Fail("the server has no child atoll-warden")

    # ---- the lab

    def lab_log(self, name):
        return read_text(os.path.join(self.lab.logs, f"{name}.log"))

    def lab_seen(self):
        """What arrived at UDP ports 9998 and 9999 of the internet so far."""
        if self.listener is None:
            path = os.path.join(self.work, "seen")
            code = ("import select,socket,sys\n"
                    "s=[socket.socket(socket.AF_INET,socket.SOCK_DGRAM) for _ in 'ab']\n"
                    "for i,x in enumerate(s): x.bind(('0.0.0.0',9998+i))\n"
                    "print('ready',flush=True)\n"
                    "while True:\n"
                    "  for x in select.select(s,[],[])[0]: print(x.recvfrom(2048),flush=True)\n")
            with open(path, "wb") as file:
                process = subprocess.Popen(["nsenter", f"--net=/proc/{self.lab.processes[0][1].pid}/ns/net", "--", sys.executable, "-c", code],
                                           stdin=subprocess.DEVNULL, stdout=file)
            self.listener = (process, path)
            deadline = time.monotonic() + 10
            while "ready" not in read_text(path) and time.monotonic() < deadline:
                time.sleep(0.02)
        return read_text(self.listener[1])

    def known_ports(self):
        return [self.server.port, self.server.tls_port, 53]

    def kill_and_wait(self, victim):
        """Kills the server or the warden and waits until somebody serves again."""
        before = self.server.pid
        os.kill(before if victim == "server" else self.warden_pid(), signal.SIGKILL)
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError, ValueError, KeyError, http.client.HTTPException):
                if self.server.pid != before and self.api.request("GET", "/health", timeout=5)[0] in (200, 204):
                    return
            if time.monotonic() > deadline:
                raise Fail(f"nobody serves after the death of the {victim}:\n{self.server.log()[-600:]}")
            time.sleep(0.05)

    def close(self):
        if self.listener:
            self.listener[0].kill()
            self.listener[0].wait()
        for sandbox in list(self.extra):
            with contextlib.suppress(Exception):
                self.drop_sandbox(sandbox)
        if self.server:
            self.server.stop()
        if self._disk:
            self._disk.stop()
        self.host_socket.stop()
        self.victim.stop()
        shutil.rmtree(self.work, ignore_errors=True)


def stop_process(process, patience=5, request=signal.SIGTERM):
    """Ends a process that this test started."""
    for pipe in (process.stdin,):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
    if process.poll() is None:
        process.send_signal(request)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def read_text(path):
    with open(path, errors="replace") as file:
        return file.read()


def status_of(pid):
    """/proc/PID/status as a dictionary."""
    return dict((line.split(":", 1)[0], line.split(":", 1)[1].strip())
                for line in read_text(f"/proc/{pid}/status").splitlines() if ":" in line)


def rss_of(pid):
    """Resident memory in bytes."""
    return int(status_of(pid)["VmRSS"].split()[0]) << 10


def file_handle(path):
    """(type, hex) of a file's handle, as open_by_handle_at takes it."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(8 + 128)
    ctypes.memmove(buffer, (128).to_bytes(4, "little"), 4)
    mount_id = ctypes.c_int()
    if libc.name_to_handle_at(-100, os.fsencode(path), buffer, ctypes.byref(mount_id), 0) != 0:
        raise Skip(f"file handles: {os.strerror(ctypes.get_errno())}")
    size = int.from_bytes(buffer.raw[:4], "little")
    return int.from_bytes(buffer.raw[4:8], "little"), buffer.raw[8:8 + size].hex()
