"""A small HTTP server that tells a request back as JSON: /headers, /get, /post, /ip, /status/N."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

LONGEST_BODY = 1 << 20


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "atoll-httpbin"

    def headers_seen(self):
        seen = {}
        for name, value in self.headers.items():
            name = "-".join(part.capitalize() for part in name.split("-"))
            seen[name] = seen[name] + "," + value if name in seen else value
        return seen

    def read_body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            length = int(self.headers.get("Content-Length") or 0)
            if length > LONGEST_BODY:
                raise ValueError("the body is too long")
            return self.rfile.read(length)
        body = b""
        while size := int(self.rfile.readline(64).split(b";")[0], 16):
            if len(body) + size > LONGEST_BODY:
                raise ValueError("the body is too long")
            body += self.rfile.read(size)
            self.rfile.readline(8)
        while self.rfile.readline(1024).strip():
            pass
        return body

    def answer(self, status, document):
        body = b"" if document is None else (json.dumps(document, indent=2) + "\n").encode()
        self.send_response(status)
        if status >= 200 and status not in (204, 304):
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status not in (204, 304):
            self.wfile.write(body)

    def request_facts(self, url):
        arguments = {k: v[0] if len(v) == 1 else v for k, v in parse_qs(url.query).items()}
        return {
            "args": arguments,
            "headers": self.headers_seen(),
            "origin": self.client_address[0],
            "url": "http://" + self.headers.get("Host", "") + self.path,
        }

    def handle_any(self):
        try:
            body = self.read_body()
        except ValueError as error:
            self.close_connection = True
            return self.answer(400, {"error": str(error)})
        url = urlsplit(self.path)
        if url.path == "/headers":
            return self.answer(200, {"headers": self.headers_seen()})
        if url.path == "/ip":
            return self.answer(200, {"origin": self.client_address[0]})
        if url.path == "/get" and self.command in ("GET", "HEAD"):
            return self.answer(200, self.request_facts(url))
        if url.path == "/post" and self.command == "POST":
            facts = self.request_facts(url)
            facts["data"] = body.decode("utf-8", "replace")
            try:
                facts["json"] = json.loads(body)
            except ValueError:
                facts["json"] = None
            return self.answer(200, facts)
        if url.path.startswith("/status/"):
            code = url.path.removeprefix("/status/")
            if code.isascii() and code.isdigit() and 200 <= int(code) <= 599:
                return self.answer(int(code), None)
            return self.answer(400, {"error": "not a status code: " + code})
        if url.path == "/":
            return self.answer(200, {"endpoints": ["/headers", "/get", "/post", "/ip", "/status/{code}"]})
        return self.answer(404, {"error": "no such path: " + url.path})

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def log_message(self, *_):
        pass


ThreadingHTTPServer.daemon_threads = True
ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
