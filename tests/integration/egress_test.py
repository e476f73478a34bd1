#!/usr/bin/env python3
"""What sandboxes of a real server reach by name, and what not: policies by domain, header rules, the server's own hosts, SOCKS5.

usage: egress_test.py BIN

BIN has atoll, atoll-warden and atoll-agent. The server runs in a network namespace made here, whose only neighbour is another one that
plays the internet (egress_internet.py). Needs root and a template (ATOLL_TEST_TEMPLATES); exits 77 without.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DOMAIN = "egress.test"
CURL = "curl -sS --connect-timeout 3 --max-time 6 "
failures = []


def check(what, good, seen=None):
    print(("ok      " if good else "FAILED  ") + what, flush=True)
    if not good:
        failures.append(what)
        print("        " + repr(seen))


class World:
    def __init__(self, binaries, templates):
        self.atoll = os.path.join(binaries, "atoll")
        self.dir = tempfile.mkdtemp(prefix="atoll-egress-")
        os.chmod(self.dir, 0o755)  # the server's user has to get through
        self.home = self.dir + "/home"
        self.env = dict(os.environ, ATOLL_HOME=self.home, ATOLL_TEMPLATES=templates)
        self.server = None
        self.processes = []

    def begin(self):
        self.host = self.namespace(["sleep", "infinity"])
        self.certificates()
        self.internet = self.namespace([sys.executable, HERE + "/egress_internet.py", self.dir])
        self.link()
        self.internet.stdin.write(b"go\n")
        self.internet.stdin.flush()
        assert self.internet.stdout.readline() == b"ready\n"

    def namespace(self, command):
        process = subprocess.Popen(["unshare", "-n", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        ours = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{process.pid}/ns/net") == ours:
            time.sleep(0.01)
        return process

    def inside(self, process, command):
        return ["nsenter", "-t", str(process.pid), "-n", *command]

    def ip(self, process, line):
        subprocess.run(self.inside(process, ["ip", *line.split()]), check=True)

    def link(self):
        self.ip(self.host, f"link add up0 type veth peer name up1 netns {self.internet.pid}")
        for process, name, address in ((self.host, "up0", "203.0.113.1/24"), (self.internet, "up1", "203.0.113.2/24")):
            self.ip(process, "link set lo up")
            self.ip(process, f"address add {address} dev {name}")
            self.ip(process, f"link set {name} up")
        for last in (5, 6, 7, 9, 53):
            self.ip(self.internet, f"address add 203.0.113.{last}/24 dev up1")
        self.ip(self.host, "route add default via 203.0.113.2")

    # Those of the internet's hosts are from the server's development CA, which its egress proxy trusts.
    def certificates(self):
        subprocess.run([self.atoll, "cert", DOMAIN, "--home", self.home], env=self.env, check=True, stdout=subprocess.DEVNULL)
        for name in ("allowed", "other", "api"):
            base = f"{self.dir}/{name}"
            with open(base + ".ext", "w") as file:
                file.write(f"subjectAltName=DNS:{name}.com,DNS:*.{name}.com\n")
            quiet = {"check": True, "stderr": subprocess.DEVNULL}
            subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}.com",
                            "-keyout", base + ".key", "-out", base + ".csr"], **quiet)
            subprocess.run(["openssl", "x509", "-req", "-in", base + ".csr", "-CA", self.home + "/keys/ca.pem", "-CAkey", self.home + "/keys/ca.key",
                            "-set_serial", str(os.getpid()), "-days", "2", "-extfile", base + ".ext", "-out", base + ".pem"], **quiet)

    def start(self):
        log = open(self.dir + "/server.log", "a")
        self.server = subprocess.Popen(
            self.inside(self.host, [self.atoll, "serve", "--home", self.home, "--domain", DOMAIN, "--resolver", "203.0.113.53",
                                    "--metrics-listen", "off", "--log-level", "debug"]),
            stdout=subprocess.PIPE, stderr=log, env=self.env, text=True)
        for line in self.server.stdout:
            if line.startswith("export E2B_API_KEY="):
                self.key = line.strip().split("=", 1)[1]
                return
        sys.exit("the server did not start:\n" + open(self.dir + "/server.log").read())

    def crash(self):
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()

    def api(self, method, path, body=None):
        command = ["curl", "-s", "-m", "30", "-w", "\n%{http_code}", "-X", method, "-H", "X-API-Key: " + self.key, "http://127.0.0.1:3000" + path]
        if body is not None:
            command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        text, status = subprocess.run(self.inside(self.host, command), capture_output=True, text=True).stdout.rsplit("\n", 1)
        return int(status), json.loads(text) if text else None

    def create(self, network=None, **more):
        body = {"templateID": "base", "timeout": 300, "secure": True, **more}
        if network is not None:
            body["network"] = network
        status, answer = self.api("POST", "/sandboxes", body)
        assert status == 201, (status, answer)
        return answer["sandboxID"]

    # Exit code and output of a shell command in a sandbox.
    def run(self, sandbox, command):
        done = subprocess.run(self.inside(self.host, [self.atoll, "sandbox", "exec", "--home", self.home, sandbox, "--", "sh", "-c", command]),
                              capture_output=True, text=True, env=self.env, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def close(self):
        if self.server and self.server.poll() is None:
            self.server.send_signal(signal.SIGINT)
            self.server.wait(30)
        for process in self.processes:
            process.kill()
            process.wait()
        if failures or sys.exc_info()[0]:
            print("the server's log is in " + self.dir)
        else:
            shutil.rmtree(self.dir)


def rule(host, value):
    return {host: [{"transform": {"headers": {"X-Test-Token": value}}}]}


def domains(world):
    box = world.create({"denyOut": ["0.0.0.0/0"], "allowOut": ["allowed.com", "*.allowed.com"]})

    def passes(what, command):
        code, out = world.run(box, CURL + command)
        check(what, code == 0 and '"address": "203.0.113.5"' in out, out)

    def refused(what, command):
        code, out = world.run(box, CURL + "--fail " + command)
        check(what, code != 0 and '"address"' not in out, out)

    passes("an allowed name over HTTP", "http://allowed.com/")
    passes("an allowed name over HTTPS", "https://allowed.com/")
    passes("a name below a wildcard", "https://sub.allowed.com/")
    refused("another name", "https://other.com/")
    refused("an address, HTTP", "http://203.0.113.6/")
    refused("an address, HTTPS", "-k https://203.0.113.6/")
    refused("the address of the allowed name by itself", "-k https://203.0.113.5/")
    refused("an allowed SNI for another address", "-k --resolve allowed.com:443:203.0.113.6 https://allowed.com/")
    refused("an allowed Host for another address", "--resolve allowed.com:80:203.0.113.6 http://allowed.com/")
    refused("another Host for an allowed address", "-H 'Host: other.com' http://allowed.com/")
    refused("another SNI for an allowed address", "-k --resolve other.com:443:203.0.113.5 https://other.com/")
    refused("another port", "http://allowed.com:8080/")
    refused("the metadata address", "http://169.254.169.254/")
    refused("the own hosts, which are denied with the rest", f"https://1-x.{DOMAIN}/")
    code, out = world.run(box, CURL + "http://allowed.com/ --next " + CURL.removeprefix("curl ") + "-H 'Host: other.com' http://allowed.com/")
    check("the second request of a connection is checked, too", "other.com is not allowed" in out, out)
    code, out = world.run(box, "python3 -c \"import socket; socket.create_connection(('203.0.113.53', 53), 3)\"")
    check("no DNS server but ours", code != 0, out)
    code, out = world.run(box, "getent ahosts secret.other.com")
    check("names that are not allowed are not asked for", code != 0, out)
    return box


def rules(world):
    box = world.create({"rules": rule("api.com", "secret")})
    code, out = world.run(box, CURL + "-H 'x-test-token: mine' https://api.com/")
    check("a header rule inside HTTPS, trusted by curl", code == 0 and out.count("secret") == 1 and "mine" not in out, out)
    code, out = world.run(box, "python3 -c \"import urllib.request as u; print(u.urlopen('https://api.com/').read())\"")
    check("... and by Python", "secret" in out, out)
    code, out = world.run(box, CURL + "http://api.com/")
    check("a header rule on plain HTTP", code == 0 and "secret" in out, out)
    code, out = world.run(box, CURL + "-k --resolve api.com:443:203.0.113.6 https://api.com/")
    check("a host that is not api.com gets no secret by HTTPS", "secret" not in out and "certificate" in out, out)
    code, out = world.run(box, CURL + "--resolve api.com:80:203.0.113.6 http://api.com/")
    check("... nor by HTTP", "secret" not in out and '"address"' not in out, out)
    code, out = world.run(box, CURL + "https://other.com/")
    check("other hosts are left alone", code == 0 and "203.0.113.6" in out and "secret" not in out, out)
    code, out = world.run(box, "getent ahosts rebind.com")
    check("a name that leads to a private address leads nowhere", "10.0.0.1" not in out, out)


def own_hosts(world):
    server = world.create()
    client = world.create()
    program = ("import http.server,json\\nclass H(http.server.BaseHTTPRequestHandler):\\n def do_GET(s):\\n"
               "  b=json.dumps(s.headers.items()).encode(); s.send_response(200); s.send_header('Content-Length',str(len(b)))\\n"
               "  s.end_headers(); s.wfile.write(b)\\nhttp.server.HTTPServer(('',8080),H).serve_forever()\\n")
    world.run(server, f'printf "{program}" > /tmp/h.py; setsid python3 /tmp/h.py > /tmp/log 2>&1 & '
                      "for i in $(seq 50); do curl -s localhost:8080 > /dev/null && break; sleep 0.1; done")
    host = f"8080-{server}.{DOMAIN}"
    code, out = world.run(client, CURL + f"https://{host}/")
    check("another sandbox by its public host", code == 0 and "user-agent" in out.lower(), out)
    code, out = world.run(client, CURL + f"https://{host}:3443/")
    check("... on the server's own port", code == 0 and "user-agent" in out.lower(), out)
    code, out = world.run(client, CURL + f"http://{host}/")
    check("... without TLS", code == 0 and "user-agent" in out.lower(), out)
    status, _ = world.api("PUT", f"/sandboxes/{client}/network", {"rules": rule(host, "injected")})
    code, out = world.run(client, CURL + f"https://{host}/")
    check("... with a header rule, set later", status == 204 and code == 0 and out.count("injected") == 1, out)
    code, out = world.run(client, CURL + "http://192.0.0.80/")
    check("the own ingress only by its name", "user-agent" not in out.lower(), out)


def socks(world):
    box = world.create({"egressProxy": {"address": "203.0.113.9:1080"}, "denyOut": ["0.0.0.0/0"], "allowOut": ["allowed.com", "203.0.113.6"]})
    code, out = world.run(box, CURL + "https://allowed.com/")
    check("through SOCKS5 by name", code == 0 and '"peer": "203.0.113.9"' in out, out)
    code, out = world.run(box, CURL + "http://203.0.113.6:8080/")
    check("through SOCKS5 by address, any port", code == 0 and '"peer": "203.0.113.9"' in out, out)
    code, out = world.run(box, CURL + "--fail http://api.com/")
    check("filtered before SOCKS5", code != 0, out)
    box = world.create({"egressProxy": {"address": "203.0.113.9:1081"}})
    code, out = world.run(box, CURL + "--fail https://allowed.com/")
    check("no way around a SOCKS5 server that is not there", code != 0, out)


def life(world, box):
    world.crash()
    world.start()
    code, out = world.run(box, CURL + "--resolve allowed.com:443:203.0.113.5 https://allowed.com/")
    check("after a crash of the server, with an address from before", code == 0 and "203.0.113.5" in out, out)
    code, out = world.run(box, CURL + "-k --resolve allowed.com:443:203.0.113.6 https://allowed.com/")
    check("... and the policy is still there", code != 0, out)
    status, _ = world.api("POST", f"/sandboxes/{box}/pause", {})
    woken, _ = world.api("POST", f"/sandboxes/{box}/connect", {"timeout": 300})
    code, out = world.run(box, CURL + "https://allowed.com/")
    check("after pause and resume", status == 204 and woken in (200, 201) and code == 0, out)
    code, out = world.run(box, CURL + "-k https://other.com/")
    check("... and the policy is still there, too", code != 0, out)


def main():
    templates = os.environ.get("ATOLL_TEST_TEMPLATES") or os.environ.get("ATOLL_TEST_HOME", "/var/lib/atoll") + "/templates"
    if os.geteuid() != 0 or not os.path.isdir(templates + "/base/rootfs"):
        print("skipped: needs root and a template in " + templates)
        sys.exit(77)
    world = World(os.path.abspath(sys.argv[1]), templates)
    try:
        world.begin()
        world.start()
        box = domains(world)
        rules(world)
        own_hosts(world)
        socks(world)
        life(world, box)
    finally:
        world.close()
    print(f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


main()
