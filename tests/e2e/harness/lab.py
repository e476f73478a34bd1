"""A network of its own for a run: the process that calls `Lab` leaves the machine's network and mounts for new ones,
and everything that it starts later (server, clients, name server) stays in them.

  this namespace                        another one: "the internet"
  192.0.2.1  inet0  <---- veth ---->    192.0.2.254, and as addresses of its own 1.1.1.1, 8.8.8.8, ...
  dnsmasq on 127.0.0.1                  world.py: web servers, a SOCKS server, things that must stay out of reach

The machine's network, firewall and files are not touched: namespaces, the mount over /etc/resolv.conf and all processes
end with the run.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

DOMAIN = "atoll.test"
SERVER = "192.0.2.1"
GATEWAY = "192.0.2.254"
WORLD = Path(__file__).with_name("world.py")

# Names of the internet. Those below `private` lead to addresses that no sandbox may reach.
NAMES = {
    "one.one.one.one": "1.1.1.1",
    "dns.google": "8.8.8.8",
    "connectivitycheck.gstatic.com": "203.0.113.4",
    "allowed.example.com": "203.0.113.20",
    "deep.below.example.com": "203.0.113.21",
    "example.com": "203.0.113.22",
    "other.example.org": "203.0.113.23",
    # Two names on one address: only the name tells them apart.
    "good.example.net": "203.0.113.30",
    "evil.example.net": "203.0.113.30",
    "socks.example.net": "203.0.113.80",
}
PRIVATE = {
    "private.example.com": "10.99.0.7",
    "metadata.example.com": "169.254.169.254",
    "home.example.com": "192.168.77.7",
    "loop.example.com": "127.0.0.1",
}

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000


class LabFailed(Exception):
    pass


def sh(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise LabFailed(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def enter():
    """Moves this process (not its threads: call it before there are any) to new network and mount namespaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        raise LabFailed(f"unshare: {os.strerror(ctypes.get_errno())}")
    sh("mount", "--make-rprivate", "/")
    sh("ip", "link", "set", "lo", "up")


def make_certificate(directory, name, common_name, alternatives, ca=None):
    """PEM files NAME.pem and NAME.key; a CA of its own without `ca`, else signed by it."""
    key, certificate = directory / f"{name}.key", directory / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
               "-keyout", key, "-out", certificate, "-subj", f"/CN={common_name}"]
    if ca:
        command += ["-CA", directory / f"{ca}.pem", "-CAkey", directory / f"{ca}.key",
                    "-addext", "subjectAltName=" + ",".join(alternatives), "-addext", "basicConstraints=critical,CA:FALSE",
                    "-addext", "extendedKeyUsage=serverAuth"]
    else:
        command += ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    sh(*command)
    return certificate


class Lab:
    """Context manager; `enter()` comes before it."""

    def __init__(self, directory, logs):
        self.directory = Path(directory)
        self.logs = Path(logs)
        self.processes = []
        self.world_ca = self.directory / "world-ca.pem"

    def __enter__(self):
        for program in ("ip", "dnsmasq", "openssl", "unshare", "nsenter"):
            if not shutil.which(program) and not Path(f"/usr/sbin/{program}").exists():
                raise LabFailed(f"{program} is missing: install what packaging/packages-test.txt names")
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        try:
            self._world()
            self._names()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, name, command):
        with open(self.logs / f"{name}.log", "wb") as log:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append((name, process))
        return process

    def _world(self):
        make_certificate(self.directory, "world-ca", "The CA of the test's internet", [])
        every = [f"DNS:{name}" for name in (*NAMES, *PRIVATE)] + [f"IP:{address}" for address in {*NAMES.values(), *PRIVATE.values()}]
        make_certificate(self.directory, "world", "the test's internet", every, ca="world-ca")
        ready = self.directory / "world-ready"
        process = self._start("world", ["unshare", "--net", "--kill-child=KILL", "--", sys.executable, WORLD,
                                        self.directory / "world.pem", self.directory / "world.key", ready])
        own = os.readlink("/proc/self/ns/net")
        self._wait("the internet's namespace", lambda: os.readlink(f"/proc/{process.pid}/ns/net") != own, process)
        sh("ip", "link", "add", "inet0", "type", "veth", "peer", "name", "lab0", "netns", process.pid)
        sh("ip", "address", "add", f"{SERVER}/24", "dev", "inet0")
        sh("ip", "link", "set", "inet0", "up")
        there = ["nsenter", f"--net=/proc/{process.pid}/ns/net", "--"]
        sh(*there, "ip", "link", "set", "lo", "up")
        for address in sorted({*NAMES.values(), *PRIVATE.values()} - {"127.0.0.1"}):
            sh(*there, "ip", "address", "add", f"{address}/32", "dev", "lo")
        sh(*there, "ip", "address", "add", f"{GATEWAY}/24", "dev", "lab0")
        sh(*there, "ip", "link", "set", "lab0", "up")
        sh("ip", "route", "add", "default", "via", GATEWAY)
        self._wait("the web servers of the internet", ready.exists, process)

    def _names(self):
        hosts = self.directory / "hosts"
        hosts.write_text("".join(f"{address} {name}\n" for name, address in {**NAMES, **PRIVATE}.items()))
        process = self._start("dnsmasq", [
            shutil.which("dnsmasq") or "/usr/sbin/dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
            "--no-poll", "--bind-interfaces", "--listen-address=127.0.0.1", "--user=root", "--pid-file=", "--log-facility=-",
            f"--addn-hosts={hosts}", f"--address=/{DOMAIN}/{SERVER}", "--cache-size=0"])
        resolv = self.directory / "resolv.conf"
        resolv.write_text("nameserver 127.0.0.1\noptions timeout:2 attempts:2\n")
        # Only this mount namespace sees it.
        sh("mount", "--bind", resolv, os.path.realpath("/etc/resolv.conf"))
        self._wait("the name server", lambda: SERVER in subprocess.run(
            ["getent", "ahostsv4", f"api.{DOMAIN}"], capture_output=True, text=True).stdout, process)

    def _wait(self, what, probe, process, limit=15.0):
        end = time.monotonic() + limit
        while not probe():
            if process.poll() is not None or time.monotonic() > end:
                raise LabFailed(f"{what} did not come up; see {self.logs}")
            time.sleep(0.02)

    def trust(self, *certificates):
        """One bundle of CAs for clients, laid over the machine's in this mount namespace as well."""
        bundle = self.directory / "trusted.pem"
        system = Path("/etc/ssl/certs/ca-certificates.crt")
        known = system.read_text() if system.exists() else ""
        bundle.write_text(known + "\n" + "\n".join(Path(path).read_text() for path in certificates))
        if system.exists():
            sh("mount", "--bind", bundle, system)
        return bundle

    def trouble(self):
        """What ended by itself."""
        return [f"{name} ended by itself with {process.returncode}" for name, process in self.processes if process.poll() is not None]

    def __exit__(self, *_):
        for _, process in reversed(self.processes):
            if process.poll() is None:
                process.kill()
                process.wait()
