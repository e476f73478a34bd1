"""Network attacks as a program: net.py VERB ARGUMENTS. Runs inside a sandbox and, as its own control, on the host.

One line of JSON: {"reached": bool, "said": text}. "reached" means that the other side really answered.
"""

import json
import os
import socket
import ssl
import struct
import sys

PATIENCE = 3.0


def answer(reached, said):
    print(json.dumps({"reached": bool(reached), "said": str(said)[:300]}))
    sys.exit(0)


def connect(address, port):
    return socket.create_connection((address, int(port)), timeout=PATIENCE)


def first_line(connection):
    data = b""
    while b"\r\n\r\n" not in data and len(data) < 65536:
        piece = connection.recv(4096)
        if not piece:
            break
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(rest) < length:
        piece = connection.recv(4096)
        if not piece:
            break
        rest += piece
    return head.split(b"\r\n")[0].decode("latin-1"), rest


def request(host, path="/"):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def good(status):
    return status.startswith("HTTP/1.") and status.split()[1] in ("200", "204", "301", "302")


def tcp(address, port):
    """An echo server, or anything that takes a connection and answers a byte."""
    with connect(address, port) as c:
        c.sendall(b"canary\n")
        answer(c.recv(16), "an answer")


def udp(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE)
        s.sendto(b"canary", (address, int(port)))
        answer(s.recv(16) == b"canary", "echo")


def http(address, port, host):
    with connect(address, port) as c:
        c.sendall(request(host))
        status, _ = first_line(c)
        answer(good(status), status)


def http_switch(address, port, host, other):
    """An allowed name first, another one on the same connection."""
    with connect(address, port) as c:
        c.sendall(request(host))
        status, _ = first_line(c)
        if not good(status):
            answer(False, "the allowed name was refused: " + status)
        c.sendall(request(other))
        status, body = first_line(c)
        answer(good(status) and other.encode() in body, status)


def http_pair(address, port, host, other):
    """Two Host headers."""
    with connect(address, port) as c:
        c.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nHost: {other}\r\n\r\n".encode())
        status, _ = first_line(c)
        answer(good(status), status)


def http_absolute(address, port, host, other):
    """A Host that is allowed and a target that names another one."""
    with connect(address, port) as c:
        c.sendall(f"GET http://{other}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        status, _ = first_line(c)
        answer(good(status), status)


def tls(address, port, name):
    """name "-": no server name at all."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with connect(address, port) as c, context.wrap_socket(c, server_hostname=None if name == "-" else name) as t:
        t.sendall(request(name))
        status, body = first_line(t)
        answer(good(status), status + " " + body.decode("latin-1")[:100])


def get(url_host, port="80"):
    """By name: DNS and all."""
    with connect(url_host, port) as c:
        c.sendall(request(url_host))
        status, _ = first_line(c)
        answer(good(status), status)


def resolve(name):
    answer(True, socket.gethostbyname(name))


def dns(server, name, port="53"):
    """A question to a name server of one's own choice."""
    question = struct.pack(">HHHHHH", 0x1234, 0x0100, 1, 0, 0, 0)
    for label in name.split("."):
        question += bytes([len(label)]) + label.encode()
    question += b"\0" + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE)
        s.sendto(question, (server, int(port)))
        data = s.recv(512)
        answer(data[:2] == b"\x12\x34" and data[3] & 15 == 0 and struct.unpack(">H", data[6:8])[0] > 0, data[:12].hex())


def gateway():
    """The default gateway, from the routing table."""
    with open("/proc/net/route") as table:
        for line in table.readlines()[1:]:
            fields = line.split()
            if fields[1] == "00000000" and int(fields[3], 16) & 2:
                return socket.inet_ntoa(bytes.fromhex(fields[2])[::-1])
    return None


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("203.0.113.1", 9))
        return s.getsockname()[0]


def show():
    answer(True, f"{own_address()} {gateway()}")


def scan(address, *more):
    """The low ports of an address and some more; says which ones take connections."""
    open_ports = []
    for port in list(range(1, 1100)) + [3000, 3128, 3443, 5000, 8000, 8080, 8443, 9000, 9464, 49983, 49999, *map(int, more)]:
        with socket.socket() as s:
            s.settimeout(0.005 if port < 1100 else 0.2)
            if s.connect_ex((address, port)) == 0:
                open_ports.append(port)
    answer(open_ports, open_ports)


def new_route():
    """Asks the kernel for another route and another address (rtnetlink)."""
    family, done = socket.AF_NETLINK, []
    with socket.socket(family, socket.SOCK_RAW, 0) as s:
        s.bind((0, 0))
        destination, via = socket.inet_aton("10.99.0.0"), socket.inet_aton("127.0.0.1")
        attributes = b"".join(struct.pack("HH", 8, kind) + value for kind, value in ((1, destination), (4, struct.pack("i", 1))))
        body = struct.pack("BBBBBBBBI", socket.AF_INET, 16, 0, 0, 254, 3, 253, 1, 0) + attributes
        s.send(struct.pack("IHHII", 16 + len(body), 24, 0x605, 1, 0) + body)  # RTM_NEWROUTE, create, ack
        code = struct.unpack("i", s.recv(4096)[16:20])[0]
        done.append(os.strerror(-code) if code else "route added")
        answer(code == 0, done)


def spoof(source, target, port):
    """A UDP packet with somebody else's address as its source, by a raw socket."""
    payload = b"spoofed-" + source.encode()
    udp_header = struct.pack(">HHHH", 4444, int(port), 8 + len(payload), 0)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(target))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
        for _ in range(3):
            s.sendto(ip + udp_header + payload, (target, 0))
    answer(True, "sent")


def ipv6(_ignored=""):
    """Anybody on the link: all nodes by multicast, then any route at all."""
    said = []
    for interface in socket.if_nameindex():
        if interface[1] == "lo":
            continue
        try:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
                s.settimeout(1)
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface[0])
                s.sendto(b"canary", ("ff02::1", 7, 0, interface[0]))
                answer(True, f"sent by {interface[1]}")
        except OSError as error:
            said.append(f"{interface[1]}: {error.strerror}")
    answer(False, said)


def main():
    verb, arguments = sys.argv[1], sys.argv[2:]
    try:
        globals()[verb](*arguments)
    except (OSError, ssl.SSLError) as error:
        answer(False, f"{type(error).__name__}: {error}")


main()
