"""The internet of the egress test, in a network namespace of its own.

usage: egress_internet.py DIR

Waits for a line on its standard input (by then the addresses are there), answers "ready" and serves until that closes.
NAME.com is 203.0.113.N for the names below: HTTP on 80 and 8080, HTTPS on 443 with DIR/NAME.pem and .key. Every answer is JSON: who
answered, and the headers of the request. SOCKS5 without a login on 203.0.113.9:1080, DNS on 203.0.113.53.
"""
import http.server
import json
import select
import socket
import socketserver
import ssl
import struct
import sys
import threading

HOSTS = {"allowed": "203.0.113.5", "other": "203.0.113.6", "api": "203.0.113.7"}
NAMES = {name + ".com": address for name, address in HOSTS.items()} | {"sub.allowed.com": HOSTS["allowed"], "rebind.com": "10.0.0.1"}


class Mirror(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self):
        body = json.dumps({"address": self.server.server_address[0], "peer": self.client_address[0], "headers": self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        pass  # clients that go away are part of the tests


def web(directory):
    for name, address in HOSTS.items():
        for port in (80, 8080, 443):
            server = Server((address, port), Mirror)
            if port == 443:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(f"{directory}/{name}.pem", f"{directory}/{name}.key")
                server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, daemon=True).start()


def dns():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("203.0.113.53", 53))
    while True:
        query, peer = sock.recvfrom(4096)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode(errors="replace").lower())
            at += 1 + query[at]
        question = query[12 : at + 5]
        address = NAMES.get(".".join(labels))
        if address and question[-4:-2] == b"\0\1":
            record = b"\xc0\x0c\0\1\0\1" + struct.pack("!IH", 60, 4) + socket.inet_aton(address)
            reply = query[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + question + record
        else:
            reply = query[:2] + (b"\x81\x80" if address else b"\x81\x83") + b"\0\1\0\0\0\0\0\0" + question
        sock.sendto(reply, peer)


def join(a, b):
    while True:
        for sock in select.select([a, b], [], [])[0]:
            data = sock.recv(65536)
            if not data:
                return
            (b if sock is a else a).sendall(data)


def socks_client(client):
    with client:
        if client.recv(2) != b"\5\1" or not client.recv(1):
            return
        client.sendall(b"\5\0")
        kind = client.recv(4)[3]
        if kind == 3:
            name = client.recv(client.recv(1)[0]).decode()
            address = NAMES[name]
        else:
            address = socket.inet_ntoa(client.recv(4))
        port = struct.unpack("!H", client.recv(2))[0]
        with socket.create_connection((address, port), 5, source_address=("203.0.113.9", 0)) as upstream:
            client.sendall(b"\5\0\0\1\0\0\0\0\0\0")
            join(client, upstream)


def socks():
    listener = socket.create_server(("203.0.113.9", 1080))
    while True:
        threading.Thread(target=socks_client, args=(listener.accept()[0],), daemon=True).start()


def main():
    if not sys.stdin.readline():
        return
    web(sys.argv[1])
    for server in (dns, socks):
        threading.Thread(target=server, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


main()
