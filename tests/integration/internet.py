"""The internet of the network tests: servers on many addresses in a network namespace of their own.

usage: internet.py LOG ADDRESS...

Waits for a line on its standard input (by then the interfaces are there), answers "ready" and serves until that closes.
TCP: tells "local=A:P peer=A:P" and closes. UDP: answers the same. Every datagram is noted in LOG.
"""
import select
import socket
import sys

TCP_PORTS = (53, 80, 443, 7000)
UDP_PORTS = (53, 7001)


def main():
    log = open(sys.argv[1], "a", buffering=1)
    addresses = sys.argv[2:]
    if not sys.stdin.readline():
        return
    tcp, udp = {}, {}
    for port in TCP_PORTS:
        tcp_socket = socket.create_server(("0.0.0.0", port), backlog=64)
        tcp[tcp_socket.fileno()] = tcp_socket
    for address in addresses:
        for port in UDP_PORTS:
            udp_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp_socket.bind((address, port))
            udp[udp_socket.fileno()] = udp_socket
    print("ready", flush=True)
    poll = select.poll()
    for fd in [0, *tcp, *udp]:
        poll.register(fd, select.POLLIN)
    text = lambda name: f"{name[0]}:{name[1]}"
    while True:
        for fd, _ in poll.poll():
            if fd == 0:
                return
            if fd in tcp:
                connection, peer = tcp[fd].accept()
                with connection:
                    try:
                        connection.sendall(f"local={text(connection.getsockname())} peer={text(peer)}\n".encode())
                    except OSError:
                        pass
            else:
                data, peer = udp[fd].recvfrom(2048)
                log.write(f"{peer[0]} {data.decode(errors='replace')}\n")
                try:
                    udp[fd].sendto(f"local={text(udp[fd].getsockname())} peer={text(peer)}\n".encode(), peer)
                except OSError:
                    pass


main()
