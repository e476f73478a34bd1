"""A small client of the control plane and of the agent, standard library only.

The suite does not use an SDK: it must be able to send what no SDK would send.
"""

import base64
import http.client
import json
import struct
import urllib.parse

AGENT_PORT = "49983"


class ApiError(Exception):
    def __init__(self, status, body):
        super().__init__(f"HTTP {status}: {body[:300]!r}")
        self.status = status
        self.body = body


class RpcError(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """The control plane: POST /sandboxes and friends."""

    def __init__(self, host, port, key):
        self.host, self.port, self.key = host, port, key

    def request(self, method, path, body=None, headers=None, timeout=60):
        """One request on a connection of its own: (status, bytes). Sends exactly the headers given."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def call(self, method, path, value=None):
        headers = {"X-API-Key": self.key}
        body = None
        if value is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(value)
        status, text = self.request(method, path, body, headers)
        if status >= 400:
            raise ApiError(status, text)
        return json.loads(text) if text else None

    def create(self, template="base", timeout=3600, **options):
        made = self.call("POST", "/sandboxes", {"templateID": template, "timeout": timeout, "secure": True, **options})
        return Sandbox(self, made["sandboxID"], made.get("envdAccessToken"))

    def info(self, sandbox_id):
        return self.call("GET", f"/sandboxes/{sandbox_id}")


class Sandbox:
    """One sandbox, by way of the server's proxy to its agent."""

    def __init__(self, api, sandbox_id, token):
        self.api, self.id, self.token = api, sandbox_id, token

    def headers(self, user=None, **more):
        headers = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": AGENT_PORT}
        if self.token:
            headers["X-Access-Token"] = self.token
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        headers.update(more)
        return headers

    def upload(self, path, data, user="user"):
        query = urllib.parse.urlencode({"path": path, "username": user})
        status, text = self.api.request(
            "POST", f"/files?{query}", data, self.headers(**{"Content-Type": "application/octet-stream"}))
        if status != 200:
            raise ApiError(status, text)

    def download(self, path, user="user"):
        query = urllib.parse.urlencode({"path": path, "username": user})
        return self.api.request("GET", f"/files?{query}", None, self.headers(**{"Accept-Encoding": "identity"}))

    def start(self, argv, user="user", timeout=60, cwd=None, stdin=False):
        return Process(self, argv, user, timeout, cwd, stdin)

    def run(self, argv, user="user", timeout=60, cwd=None):
        """Waits for the end: (exit code, stdout, stderr) as int and bytes."""
        return self.start(argv, user, timeout, cwd).wait()

    def health(self, timeout=10):
        return self.api.request("GET", "/health", None, self.headers(), timeout)[0]

    def kill(self):
        self.api.call("DELETE", f"/sandboxes/{self.id}")


class Process:
    """A process started through the agent, as a stream of events."""

    def __init__(self, sandbox, argv, user, timeout, cwd, stdin):
        config = {"cmd": argv[0], "args": list(argv[1:]), "envs": {}}
        if cwd:
            config["cwd"] = cwd
        message = json.dumps({"process": config, "stdin": stdin}).encode()
        headers = sandbox.headers(user, **{
            "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1",
            "Connect-Timeout-Ms": str(timeout * 1000), "Keepalive-Ping-Interval": "10"})
        self.connection = http.client.HTTPConnection(sandbox.api.host, sandbox.api.port, timeout=timeout + 15)
        self.connection.request("POST", "/process.Process/Start", struct.pack(">BI", 0, len(message)) + message, headers)
        self.response = self.connection.getresponse()
        if self.response.status != 200:
            text = self.response.read()
            self.close()
            raise ApiError(self.response.status, text)
        self.pid = None
        self.stdout, self.stderr, self.exit_code = b"", b"", None

    def events(self):
        """Yields ('stdout'|'stderr', bytes) until the process has ended."""
        while True:
            head = self._exactly(5)
            flag, size = struct.unpack(">BI", head)
            message = json.loads(self._exactly(size) or b"{}")
            if flag & 2:
                error = message.get("error")
                self.close()
                if error:
                    raise RpcError(error.get("code"), error.get("message"))
                return
            event = message.get("event", {})
            if "start" in event:
                self.pid = event["start"].get("pid")
            for name in ("stdout", "stderr"):
                if name in event.get("data", {}):
                    data = base64.b64decode(event["data"][name])
                    setattr(self, name, getattr(self, name) + data)
                    yield name, data
            if "end" in event:
                self.exit_code = event["end"].get("exitCode", 0)

    def until(self, text):
        """Reads until stdout holds `text`; False if the process ends before."""
        if text in self.stdout:
            return True
        for _ in self.events():
            if text in self.stdout:
                return True
        return False

    def wait(self):
        for _ in self.events():
            pass
        if self.exit_code is None:
            raise RpcError("data_loss", "the stream ended without an end event")
        return self.exit_code, self.stdout, self.stderr

    def close(self):
        self.connection.close()

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            part = self.response.read(size - len(data))
            if not part:
                raise RpcError("data_loss", "the stream broke off")
            data += part
        return data
