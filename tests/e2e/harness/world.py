"""The internet of the tests, in a network namespace of its own: world.py CERTIFICATE KEY READY-FILE.

Every address answers on 80 and 443; what it says depends on the address, as on the real one:
  1.1.1.1 redirects with 301, 8.8.8.8 with 302; /generate_204 answers 204;
  anything else answers JSON: which address and name were asked, by whom, with which headers.
Port 7 echoes TCP and UDP, port 1080 is a SOCKS5 server (user "guest", password "secret") that resolves names by its own table.
"""

import json
import os
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness.lab import NAMES  # noqa: E402

STATUS = {"1.1.1.1": (301, "https://one.one.one.one/"), "8.8.8.8": (302, "https://dns.google/")}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "world"

    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        address = self.connection.getsockname()[0]
        if self.path == "/generate_204":
            return self.reply(204, b"")
        if address in STATUS:
            status, location = STATUS[address]
            return self.reply(status, b"", {"Location": location})
        seen = {
            "address": address,
            "client": self.client_address[0],
            "host": self.headers.get("Host"),
            "name": getattr(self.connection, "asked_name", None),
            "scheme": "https" if isinstance(self.connection, ssl.SSLSocket) else "http",
            "path": self.path,
            "method": self.command,
            "headers": [[key, value] for key, value in self.headers.items()],
            "body": body.decode("latin-1")[:1000],
        }
        return self.reply(200, json.dumps(seen).encode(), {"Content-Type": "application/json"})

    do_GET = do_POST = do_PUT = do_HEAD = answer

    def reply(self, status, body, headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, form, *arguments):
        print(time.strftime("%H:%M:%S"), self.client_address[0], self.connection.getsockname(), form % arguments, flush=True)


class Web(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port, context=None):
        self.context = context
        super().__init__(("0.0.0.0", port), Handler)

    # The handshake belongs to the thread of the connection: a client that says nothing stops nobody.
    def finish_request(self, request, client_address):
        request.settimeout(60)
        if self.context:
            try:
                request = self.context.wrap_socket(request, server_side=True)
            except (OSError, ssl.SSLError) as error:
                print("handshake with", client_address[0], error, flush=True)
                return
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        print("connection of", client_address, sys.exc_info()[1], flush=True)


def remember_name(connection, name, _context):
    connection.asked_name = name


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def echo_tcp(connection):
    with connection:
        while data := connection.recv(4096):
            connection.sendall(data)


def echo_udp(address):
    # One socket per address: the answer must come from where the question went.
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        try:
            server.bind((address, 7))
            break
        except OSError:  # the address comes a moment later
            time.sleep(0.05)
    while True:
        data, client = server.recvfrom(2048)
        server.sendto(data, client)


def exactly(connection, count):
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise OSError("the client left")
        data += piece
    return data


def socks(connection):
    with connection:
        connection.settimeout(30)
        _, count = exactly(connection, 2)
        methods = exactly(connection, count)
        if 2 not in methods:
            connection.sendall(b"\x05\xff")
            return
        connection.sendall(b"\x05\x02")
        _, length = exactly(connection, 2)
        user = exactly(connection, length)
        password = exactly(connection, exactly(connection, 1)[0])
        good = (user, password) == (b"guest", b"secret")
        connection.sendall(b"\x01\x00" if good else b"\x01\x01")
        if not good:
            return
        _, _, _, kind = exactly(connection, 4)
        host = socket.inet_ntoa(exactly(connection, 4)) if kind == 1 else exactly(connection, exactly(connection, 1)[0]).decode()
        port = int.from_bytes(exactly(connection, 2), "big")
        print("SOCKS connect to", host, port, flush=True)
        try:
            target = socket.create_connection((NAMES.get(host, host), port), timeout=5, source_address=("203.0.113.80", 0))
        except OSError:
            connection.sendall(b"\x05\x05\x00\x01\0\0\0\0\0\0")
            return
        connection.sendall(b"\x05\x00\x00\x01\0\0\0\0\0\0")
        connection.settimeout(None)
        threading.Thread(target=pump, args=(target, connection), daemon=True).start()
        pump(connection, target)


def serve(port, handler):
    server = socket.create_server(("0.0.0.0", port), backlog=64)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=handler, args=(connection,), daemon=True).start()


def main():
    certificate, key, ready = sys.argv[1:4]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    context.sni_callback = remember_name
    servers = [Web(80), Web(443, context)]
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    threads += [threading.Thread(target=serve, args=(7, echo_tcp), daemon=True),
                threading.Thread(target=serve, args=(1080, socks), daemon=True)]
    threads += [threading.Thread(target=echo_udp, args=(address,), daemon=True) for address in set(NAMES.values())]
    for thread in threads:
        thread.start()
    Path(ready).write_text(str(os.getpid()))
    threads[0].join()


if __name__ == "__main__":
    main()
