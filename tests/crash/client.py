"""Plain HTTP to a server that is killed again and again: every answer is an answer, or nothing is known."""

import http.client
import json
import urllib.parse

AGENT_PORT = "49983"


class Unknown(Exception):
    """The connection broke or nobody answered in time: the request may have been carried out or not."""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:200]!r}"


class Api:
    """One connection per request: what a kept one would hide is part of the test."""

    def __init__(self, url, key):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.key = parts.hostname, parts.port, key

    def request(self, method, target, headers, body=None, timeout=40):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, target, body=body, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        except (OSError, http.client.HTTPException) as failure:
            raise Unknown(f"{method} {target}: {failure!r}") from failure
        finally:
            connection.close()

    def call(self, method, target, body=None, timeout=40):
        headers = {"X-API-Key": self.key}
        if body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(body)
        return self.request(method, target, headers, body, timeout)

    def healthy(self, timeout=20):
        try:
            return self.request("GET", "/health", {}, timeout=timeout).status in (200, 204)
        except Unknown:
            return False

    def list(self):
        """All sandboxes of the key as {id: row}."""
        rows, token = {}, ""
        for _ in range(100):
            answer = self.call("GET", "/v2/sandboxes?limit=100" + (f"&nextToken={urllib.parse.quote(token)}" if token else ""))
            if answer.status != 200:
                raise Unknown(f"list: {answer}")
            rows.update({row["sandboxID"]: row for row in answer.json})
            token = answer.headers.get("X-Next-Token", "")
            if not token:
                return rows
        raise Unknown("list: no end")


class Inside:
    """The agent of one sandbox, through the proxy."""

    def __init__(self, api, sandbox_id, token):
        self.api = api
        self.headers = {"E2b-Sandbox-Id": sandbox_id, "E2b-Sandbox-Port": AGENT_PORT}
        if token:
            self.headers["X-Access-Token"] = token

    def write(self, path, content):
        target = "/files?path=" + urllib.parse.quote(path)
        return self.api.request("POST", target, {**self.headers, "Content-Type": "application/octet-stream"}, content)

    def read(self, path):
        return self.api.request("GET", "/files?path=" + urllib.parse.quote(path), self.headers)

    def processes(self):
        answer = self.api.request("POST", "/process.Process/List", {**self.headers, "Content-Type": "application/json"}, "{}")
        return answer, {entry["pid"] for entry in answer.json.get("processes", [])} if answer.status == 200 else set()

    def run(self, command, until_start=False):
        """(answer, stdout, exit code); with until_start (answer, pid, None) as soon as it runs, and it goes on."""
        message = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", command]}, "stdin": False}).encode()
        body = b"\0" + len(message).to_bytes(4, "big") + message
        headers = {**self.headers, "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        connection = http.client.HTTPConnection(self.api.host, self.api.port, timeout=40)
        try:
            connection.request("POST", "/process.Process/Start", body=body, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                return Answer(response.status, response.headers, response.read()), None, None
            out = b""
            while True:
                head = response.read(5)
                if len(head) < 5:
                    raise Unknown("the stream ended early")
                data = response.read(int.from_bytes(head[1:], "big"))
                event = json.loads(data)
                if head[0] & 2:
                    if "error" in event:
                        raise Unknown(f"{command!r}: {event['error']}")
                    raise Unknown("the stream ended without an end of the process")
                event = event.get("event", {})
                if "start" in event and until_start:
                    return Answer(200, response.headers, b""), event["start"]["pid"], None
                if "data" in event:
                    out += decode(event["data"].get("stdout", ""))
                if "end" in event:
                    return Answer(200, response.headers, b""), out, event["end"].get("exitCode", 0)
        except (OSError, ValueError, http.client.HTTPException) as failure:
            raise Unknown(f"run: {failure!r}") from failure
        finally:
            connection.close()


def decode(text):
    import base64
    return base64.b64decode(text)
