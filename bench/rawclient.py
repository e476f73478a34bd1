"""A small HTTP client for many sandboxes at once: asyncio, kept connections, no more than these calls need.

The clock of every call runs around the call alone, in this process; with hundreds of calls at once the client's own
turn-taking is in the figures too.
"""

import asyncio
import json
import urllib.parse


class CallFailed(Exception):
    pass


class Connection:
    """One kept connection; one call at a time."""

    def __init__(self, url, key):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.key = parts.hostname, parts.port, key
        self.reader = self.writer = None

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self

    def close(self):
        if self.writer:
            self.writer.close()

    async def request(self, method, target, headers, body=b""):
        """(status, body)"""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.host}:{self.port}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        if fields.get("transfer-encoding") == "chunked":
            pieces = []
            while True:
                size = int(await self.reader.readline(), 16)
                piece = await self.reader.readexactly(size + 2)
                if size == 0:
                    break
                pieces.append(piece[:-2])
            return status, b"".join(pieces)
        return status, await self.reader.readexactly(int(fields.get("content-length", 0)))

    async def api(self, method, target, body=None, *expected):
        headers = {"X-API-Key": self.key}
        data = b""
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        status, answer = await self.request(method, target, headers, data)
        if status not in expected:
            raise CallFailed(f"{method} {target}: {status} {answer[:300]!r}")
        return json.loads(answer) if answer else None

    async def create(self, timeout=3600, template="base"):
        return await self.api("POST", "/v2/sandboxes", {"templateID": template, "timeout": timeout}, 201)

    async def kill(self, sandbox):
        await self.api("DELETE", f"/sandboxes/{sandbox['sandboxID']}", None, 204)

    @staticmethod
    def inside(sandbox, port=49983):
        headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": str(port)}
        if sandbox.get("envdAccessToken"):
            headers["X-Access-Token"] = sandbox["envdAccessToken"]
        return headers

    async def run(self, sandbox, command="true"):
        """Runs it to its end, which must be a good one."""
        message = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", command]}, "stdin": False}).encode()
        headers = {**self.inside(sandbox), "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        status, answer = await self.request("POST", "/process.Process/Start", headers, b"\0" + len(message).to_bytes(4, "big") + message)
        if status != 200 or b"exit status 0" not in answer:
            raise CallFailed(f"run {command!r}: {status} {answer[:300]!r}")

    async def execute(self, sandbox, code, expect=None, language=None, may_die=False):
        """Runs a cell to its end; `expect` is what it shows, as its main result or on stdout."""
        body = {"code": code, **({"language": language} if language else {})}
        headers = {**self.inside(sandbox, 49999), "Content-Type": "application/json"}
        status, answer = await self.request("POST", "/execute", headers, json.dumps(body).encode())
        messages = [json.loads(line) for line in answer.splitlines() if line] if status == 200 else []
        kinds = {message["type"] for message in messages}
        if may_die and status == 200:
            return
        if status != 200 or "end_of_execution" not in kinds or "error" in kinds:
            raise CallFailed(f"execute {code!r} ({language}): {status} {answer[:300]!r}")
        shown = [message["text"].strip() for message in messages
                 if message["type"] == "stdout" or message.get("is_main_result")]
        if expect is not None and expect not in shown:
            raise CallFailed(f"execute {code!r} ({language}): {shown} instead of {expect}")

    async def upload(self, sandbox, path, content):
        headers = {**self.inside(sandbox), "Content-Type": "application/octet-stream"}
        status, answer = await self.request("POST", "/files?path=" + urllib.parse.quote(path), headers, content)
        if status != 200:
            raise CallFailed(f"upload: {status} {answer[:300]!r}")
